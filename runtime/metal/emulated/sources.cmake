# The emulated device: Metal's functions as C++, compiled on the host and run there. The headers of
# prelude/ go into the library as one text, so that the two always fit.
set(emulated_folder ${CMAKE_CURRENT_LIST_DIR})
set(emulated_prelude)
foreach(header abi types vectors math checks threads matrices atomics kernels)
  list(APPEND emulated_prelude ${emulated_folder}/prelude/${header}.h)
endforeach()
set(emulated_text ${CMAKE_CURRENT_BINARY_DIR}/generated/emulated_prelude.h)
add_custom_command(
  OUTPUT ${emulated_text}
  COMMAND ${CMAKE_COMMAND} -E cat ${emulated_prelude} > ${emulated_text}
  DEPENDS ${emulated_prelude}
  VERBATIM)
# Compiled shaders are kept under a digest of all that makes them, and so of what translates them.
set(emulated_translator)
foreach(file source.cpp tokens.cpp toolchain.cpp)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${emulated_folder}/${file})
  file(SHA256 ${emulated_folder}/${file} emulated_hash)
  string(APPEND emulated_translator ${emulated_hash})
endforeach()
string(SHA256 emulated_translator ${emulated_translator})
set_source_files_properties(
  metal/emulated/toolchain.cpp
  PROPERTIES COMPILE_DEFINITIONS
             "MENAGERIE_PRELUDE=\"${emulated_text}\";MENAGERIE_TRANSLATOR=\"${emulated_translator}\""
             OBJECT_DEPENDS ${emulated_text})
set(metal_device_sources
    metal/emulated/device.cpp
    metal/emulated/fibers.cpp
    metal/emulated/memory.cpp
    metal/emulated/products.cpp
    metal/emulated/source.cpp
    metal/emulated/stream.cpp
    metal/emulated/tokens.cpp
    metal/emulated/toolchain.cpp
    metal/emulated/worker.cpp)
