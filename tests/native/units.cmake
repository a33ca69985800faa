# What the C++ tests and the fuzz targets are built of, besides themselves: `units`.
set(MENAGERIE_PORTABLE_KERNELS ON)
include(${CMAKE_CURRENT_LIST_DIR}/../../runtime/kernels/sources.cmake)
set(units
    ${kernel_sources}
    common/bundle.cpp
    common/caches.cpp
    common/context.cpp
    common/copy.cpp
    common/error.cpp
    common/json.cpp
    common/manifest.cpp
    common/mapped_file.cpp
    common/memory.cpp
    common/model_library.cpp
    common/platform/machine.cpp
    common/platform/threads_own.cpp
    common/quantised.cpp
    common/safetensors.cpp
    common/ed25519.cpp
    common/sha256.cpp
    common/tensor.cpp
    common/trust.cpp
    common/windows.cpp
    cpu/backend.cpp
    third_party/monocypher/monocypher.c
    tools/parity.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND units kernels/panels.cpp)
endif()
list(TRANSFORM units PREPEND ${runtime}/)
