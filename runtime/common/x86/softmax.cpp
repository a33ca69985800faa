#include "common/kernels.h"
#include "common/x86/kernels.h"

namespace menagerie::kernels {

float maximum(const float* values, int64_t n) { return x86::kernels().maximum(values, n); }

float exponentials(float* values, int64_t n, float highest) {
  return x86::kernels().exponentials(values, n, highest);
}

}  // namespace menagerie::kernels
