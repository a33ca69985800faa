# Compiles with the clang of the `ziglang` wheel against glibc 2.28, with libc++ inside: what is built
# so runs on any Linux of 2018 or later, as manylinux_2_28 asks (PEP 600).
execute_process(
  COMMAND python -c "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / 'zig')"
  OUTPUT_VARIABLE zig
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(MENAGERIE_ZIG ON)
set(CMAKE_CXX_COMPILER ${zig} c++)
set(CMAKE_CXX_FLAGS_INIT "-target x86_64-linux-gnu.2.28 -g0")
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
