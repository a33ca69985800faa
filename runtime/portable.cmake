# Compiles against glibc 2.28, with libc++ inside: what is built so runs on any Linux of 2018 or later,
# as manylinux_2_28 asks (PEP 600). For this kind of processor unless another one is named:
# portable_arm64.cmake does.
if(NOT MENAGERIE_PROCESSOR)
  set(MENAGERIE_PROCESSOR x86_64)
endif()
set(zig_target ${MENAGERIE_PROCESSOR}-linux-gnu.2.28)
include(${CMAKE_CURRENT_LIST_DIR}/zig.cmake)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${MENAGERIE_PROCESSOR})
