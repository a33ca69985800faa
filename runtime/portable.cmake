# Compiles with the clang of the `ziglang` wheel against glibc 2.28, with libc++ inside: what is built
# so runs on any Linux of 2018 or later, as manylinux_2_28 asks (PEP 600). For this kind of processor
# unless another one is named: portable_arm64.cmake does.
if(NOT MENAGERIE_PROCESSOR)
  set(MENAGERIE_PROCESSOR x86_64)
endif()
execute_process(
  COMMAND python -c "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / 'zig')"
  OUTPUT_VARIABLE zig
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(MENAGERIE_ZIG ON)
set(CMAKE_C_COMPILER ${zig} cc)
set(CMAKE_CXX_COMPILER ${zig} c++)
set(CMAKE_C_FLAGS_INIT "-target ${MENAGERIE_PROCESSOR}-linux-gnu.2.28 -g0")
set(CMAKE_CXX_FLAGS_INIT ${CMAKE_C_FLAGS_INIT})
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${MENAGERIE_PROCESSOR})
