// Inserted into every wrapper for Metal: launches the program's kernels with every step checked.
// Inductor's own wrapper drops all error codes, hands a std::function to the runtime, which may be
// built with another standard library, and makes one shader library a kernel.
#pragma once

#include <exception>
#include <functional>

namespace torch::aot_inductor {

// All kernels of a program, compiled together; released when the model's library is unloaded.
class ProgramShaders {
 public:
  explicit ProgramShaders(const char* source) {
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_mps_create_shader_library(source, &library_));
  }
  ~ProgramShaders() {
    aoti_torch_mps_delete_shader_library(library_);
  }
  ProgramShaders(const ProgramShaders&) = delete;
  ProgramShaders& operator=(const ProgramShaders&) = delete;

  AOTIMetalKernelFunctionHandle kernel(const char* name) const {
    AOTIMetalKernelFunctionHandle function = nullptr;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_mps_get_kernel_function(library_, name, &function));
    return function;
  }

 private:
  AOTIMetalShaderLibraryHandle library_ = nullptr;
};

using KernelEncoder = std::function<void(AOTIMetalKernelFunctionHandle)>;

// Lets `encode` set the kernel's arguments and dispatch it. What it throws crosses the runtime's
// frames as a value, since an exception may not.
inline void run_kernel(AOTIMetalKernelFunctionHandle kernel, const KernelEncoder& encode) {
  struct Call {
    const KernelEncoder& encode;
    std::exception_ptr failure;
  } call{encode, nullptr};
  const auto callback = [](AOTIMetalKernelFunctionHandle function, void* data) {
    Call& wanted = *static_cast<Call*>(data);
    try {
      wanted.encode(function);
    } catch (...) {
      wanted.failure = std::current_exception();
    }
  };
  const AOTITorchError status = aoti_torch_mps_run_command_block(kernel, callback, &call);
  if (call.failure) std::rethrow_exception(call.failure);
  AOTI_TORCH_ERROR_CODE_CHECK(status);
}

}  // namespace torch::aot_inductor
