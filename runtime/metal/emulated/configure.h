// How Python tells the emulated device where its compiler is.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// The command that the arguments of clang and lld follow ("python", "-m", "ziglang"), and a folder
// that compiled shaders are kept in. 0, or 1 with a message of the thread.
int menagerie_emulator_configure(const char* const* compiler, size_t words,
                                 const char* cache_folder);

#ifdef __cplusplus
}
#endif
