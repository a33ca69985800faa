// What generated code calls around its own loops, so that a profile has them as well.
#include "common/shim_support.h"

using namespace menagerie;

AOTITorchError menagerie_kernel_begin(const char* name, int64_t bytes) {
  return guarded(__func__, [&] {
    if (Profile* profile = Context::current().profile()) profile->begin(name, double(bytes));
  });
}

AOTITorchError menagerie_kernel_end() {
  return guarded(__func__, [] {
    if (Profile* profile = Context::current().profile()) profile->end();
  });
}
