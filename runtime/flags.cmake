# How every C++ target of ours is compiled: the runtime's and its tests'.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON) # vector extensions

# The headers of the nlohmann-json wheel, wherever Python finds it.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
          "import importlib.util as u; print(u.find_spec('nlohmann_json').submodule_search_locations[0])"
  OUTPUT_VARIABLE nlohmann_json
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)

# Gives a target the include folders, warnings and processor of all others; `sanitize` also the checks
# of AddressSanitizer and UndefinedBehaviorSanitizer.
function(menagerie_flags target sanitize)
  set(runtime ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  target_include_directories(${target} PRIVATE ${runtime} ${runtime}/include)
  target_include_directories(${target} SYSTEM PRIVATE ${nlohmann_json}/include)
  # GCC 12 sees impossible overlaps in string concatenation (-Wrestrict); vectors are passed in
  # registers, which -Wpsabi warns of although all of our callers are built alike.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-psabi
                                           $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    # zig reads processors in its own spelling
    target_compile_options(
      ${target} PRIVATE $<IF:$<BOOL:${MENAGERIE_ZIG}>,-mcpu=x86_64_v3,-march=x86-64-v3>)
  endif()
  if(sanitize)
    target_compile_definitions(${target} PRIVATE MENAGERIE_SANITIZED)
    # GCC sees uninitialised variants in instrumented code that are none; -g1 keeps a finding's lines.
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -g1
                                             -Wno-maybe-uninitialized)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  endif()
endfunction()
