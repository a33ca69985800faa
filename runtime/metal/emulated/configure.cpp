#include "metal/emulated/configure.h"

#include <string>
#include <vector>

#include "common/error.h"
#include "metal/emulated/toolchain.h"

extern "C" __attribute__((visibility("default"))) int menagerie_emulator_configure(
    const char* const* compiler, size_t words, const char* cache_folder) {
  return menagerie::guarded(__func__, [&] {
    menagerie::require(compiler != nullptr && words > 0 && cache_folder != nullptr,
                       "a command and a folder are needed");
    menagerie::metal::emulated::configure(std::vector<std::string>(compiler, compiler + words),
                                          cache_folder);
  });
}
