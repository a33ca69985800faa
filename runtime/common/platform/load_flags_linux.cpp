#include <dlfcn.h>

#include "common/platform/load_flags.h"

namespace menagerie {

// Deep binding looks into the library's own dependencies, of which this runtime is one, before the
// global scope: where the application itself is linked with libtorch, whose shim functions have the
// same names, they are not taken.
const int kModelLoadFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | RTLD_DEEPBIND;

}  // namespace menagerie
