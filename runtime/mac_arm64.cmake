# The CPU runtime for Macs with Apple's processors, from any host: `menagerie_cpu` and
# `menagerie_signature`. What needs Apple's frameworks is built on a Mac.
set(zig_target aarch64-macos.15.0)
include(${CMAKE_CURRENT_LIST_DIR}/zig.cmake)
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_OSX_DEPLOYMENT_TARGET 15.0)
# It would change names in what is installed, and nothing is.
set(CMAKE_INSTALL_NAME_TOOL ${CMAKE_COMMAND})
