# The clang of the `ziglang` wheel, for whatever `zig_target` names.
execute_process(
  COMMAND python -c "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / 'zig')"
  OUTPUT_VARIABLE zig
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(MENAGERIE_ZIG ON)
set(CMAKE_C_COMPILER ${zig} cc)
foreach(language CXX OBJCXX)
  set(CMAKE_${language}_COMPILER ${zig} c++)
endforeach()
foreach(language C CXX OBJCXX)
  set(CMAKE_${language}_FLAGS_INIT "-target ${zig_target} -g0")
endforeach()
