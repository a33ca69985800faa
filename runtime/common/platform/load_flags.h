// How dlopen loads a model library on this platform.
#pragma once

namespace menagerie {
extern const int kModelLoadFlags;
}
