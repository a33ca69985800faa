// Inserted into the CPU's wrappers: tells the runtime when a generated kernel begins and ends, so
// that it can say where the time goes. Without a profile, it is two calls that look at one pointer.
#pragma once

#include <cstdint>

extern "C" {
AOTITorchError menagerie_kernel_begin(const char* name, int64_t bytes);
AOTITorchError menagerie_kernel_end();
}

namespace torch::aot_inductor {

class TimedKernel {
 public:
  TimedKernel(const char* name, int64_t bytes) {
    AOTI_TORCH_ERROR_CODE_CHECK(menagerie_kernel_begin(name, bytes));
  }
  TimedKernel(const TimedKernel&) = delete;
  TimedKernel& operator=(const TimedKernel&) = delete;
  ~TimedKernel() { menagerie_kernel_end(); }
};

}  // namespace torch::aot_inductor
