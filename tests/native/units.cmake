# What the C++ tests and the fuzz targets are built of, beside themselves: `units`.
set(MENAGERIE_PORTABLE_KERNELS ON)
include(${CMAKE_CURRENT_LIST_DIR}/../../runtime/kernels/sources.cmake)
set(units
    ${kernel_sources}
    common/arena.cpp
    common/bundle.cpp
    common/context.cpp
    common/copy.cpp
    common/error.cpp
    common/fields.cpp
    common/integer_rows.cpp
    common/json.cpp
    common/constant_cache.cpp
    common/kernel_cache.cpp
    common/manifest.cpp
    common/mapped_file.cpp
    common/model_library.cpp
    common/pages.cpp
    common/platform/load_flags_plain.cpp
    common/platform/threads_own.cpp
    common/profile.cpp
    common/quantised.cpp
    common/safetensors.cpp
    common/ed25519.cpp
    common/sha256.cpp
    common/sha512.cpp
    common/tensor.cpp
    common/trust.cpp
    common/windows.cpp
    cpu/backend.cpp
    metal/emulated/signature.cpp
    metal/emulated/source.cpp
    metal/emulated/tokens.cpp
    third_party/monocypher/monocypher.c
    tools/parity.cpp)
if(APPLE)
  list(APPEND units common/platform/machine_darwin.cpp)
else()
  list(APPEND units common/platform/machine_linux.cpp)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND units common/platform/sha256_x86.cpp kernels/panels.cpp)
else()
  list(APPEND units common/platform/sha256_plain.cpp)
endif()
list(TRANSFORM units PREPEND ${runtime}/)
