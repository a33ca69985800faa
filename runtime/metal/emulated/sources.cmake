# The emulated device: Metal's functions as C++, compiled on the host and run there. The headers of
# prelude/ go into the library as one text, so that the two always fit.
set(emulated_folder ${CMAKE_CURRENT_LIST_DIR})
set(emulated_prelude)
foreach(header types language abi vectors math checks threads matrices atomics kernels tensors)
  list(APPEND emulated_prelude ${emulated_folder}/prelude/${header}.h)
endforeach()
set(emulated_text ${CMAKE_CURRENT_BINARY_DIR}/generated/emulated_prelude.h)
add_custom_command(
  OUTPUT ${emulated_text}
  COMMAND ${CMAKE_COMMAND} -E cat ${emulated_prelude} > ${emulated_text}
  DEPENDS ${emulated_prelude}
  VERBATIM)
set_source_files_properties(
  metal/emulated/shaders.cpp PROPERTIES COMPILE_DEFINITIONS "MENAGERIE_PRELUDE=\"${emulated_text}\""
                                        OBJECT_DEPENDS ${emulated_text})
set(metal_device_sources
    metal/emulated/device.cpp
    metal/emulated/fibers.cpp
    metal/emulated/memory.cpp
    metal/emulated/products.cpp
    metal/emulated/shaders.cpp
    metal/emulated/stream.cpp
    metal/emulated/worker.cpp)
