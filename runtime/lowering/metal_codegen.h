// Inserted into every wrapper for Metal: launches the program's kernels with every step checked.
// Inductor's own wrapper drops all error codes, hands a std::function to the runtime, which may be
// built with another standard library, and makes one shader library a kernel.
#pragma once

#include <bit>
#include <exception>
#include <initializer_list>

extern "C" AOTITorchError menagerie_mps_fault(const char* const* messages, int64_t count,
                                              AtenTensorHandle* ret);

namespace torch::aot_inductor {

// All kernels of a program, compiled together; released when the model's library is unloaded.
class ProgramShaders {
 public:
  explicit ProgramShaders(const char* source) {
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_mps_create_shader_library(source, &library_));
  }
  ~ProgramShaders() { aoti_torch_mps_delete_shader_library(library_); }
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

// Lets `encode(data, kernel)` set the kernel's arguments and dispatch it. What it throws crosses
// the runtime's frames as a value, since an exception may not.
inline void launch(AOTIMetalKernelFunctionHandle kernel, const void* data,
                   void (*encode)(const void* data, AOTIMetalKernelFunctionHandle kernel)) {
  struct Call {
    const void* data;
    void (*encode)(const void* data, AOTIMetalKernelFunctionHandle kernel);
    std::exception_ptr failure;
  } call{data, encode, nullptr};
  const auto callback = [](AOTIMetalKernelFunctionHandle function, void* wanted) {
    Call& call = *static_cast<Call*>(wanted);
    try {
      call.encode(call.data, function);
    } catch (...) {
      call.failure = std::current_exception();
    }
  };
  const AOTITorchError status = aoti_torch_mps_run_command_block(kernel, callback, &call);
  if (call.failure) std::rethrow_exception(call.failure);
  AOTI_TORCH_ERROR_CODE_CHECK(status);
}

template <typename Encode>
void run_kernel(AOTIMetalKernelFunctionHandle kernel, const Encode& encode) {
  launch(kernel, &encode, [](const void* data, AOTIMetalKernelFunctionHandle function) {
    (*static_cast<const Encode*>(data))(function);
  });
}

// A kernel's argument of a real number, which is passed as an integer.
inline int64_t bits_of(float number) { return std::bit_cast<int32_t>(number); }

// What a kernel writes the number of a failed check to; the run then fails with that message.
inline RAIIAtenTensorHandle fault_of(std::initializer_list<const char*> messages) {
  AtenTensorHandle fault = nullptr;
  AOTI_TORCH_ERROR_CODE_CHECK(
      menagerie_mps_fault(messages.begin(), static_cast<int64_t>(messages.size()), &fault));
  return RAIIAtenTensorHandle(fault);
}

// The program's own, under the path and hash that are defined before this text.
#ifdef MENAGERIE_SHADERS
static const ProgramShaders& program_shaders() {
  static const ProgramShaders shaders(MENAGERIE_SHADERS);
  return shaders;
}
#endif

}  // namespace torch::aot_inductor

// Inductor drops this call's error code; a macro is not replaced within itself.
#define aoti_torch_clone_preserve_strides(...) \
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_clone_preserve_strides(__VA_ARGS__))
