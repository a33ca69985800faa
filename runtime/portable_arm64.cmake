# The same for Linux on arm64.
set(MENAGERIE_PROCESSOR aarch64)
include(${CMAKE_CURRENT_LIST_DIR}/portable.cmake)
