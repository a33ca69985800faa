#include <dlfcn.h>

#include "common/platform/load_flags.h"

namespace menagerie {

// Sanitizers refuse deep binding, and Mach-O names the library of each symbol anyway.
const int kModelLoadFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;

}  // namespace menagerie
