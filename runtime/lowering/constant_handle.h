// In front of a device's header: constants whose address is asked for when generated code reads
// them. Torch's own class asks for all as they are set, and every weight that is stored narrower
// would be widened, also where products alone read it.
#pragma once

#include <limits>

#define ConstantHandle EagerConstantHandle
#include <torch/csrc/inductor/aoti_runtime/utils.h>
#undef ConstantHandle

namespace torch::aot_inductor {

class ConstantHandle {
 public:
  ConstantHandle() = default;
  explicit ConstantHandle(AtenTensorHandle handle) : handle_(handle) {}

  operator AtenTensorHandle() const { return handle_; }
  AtenTensorHandle tensor() const { return handle_; }
  AtenTensorHandle get() const { return handle_; }
  void* data_ptr() const {
    void* data = nullptr;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(handle_, &data));
    return data;
  }

 private:
  AtenTensorHandle handle_{};
};

inline void* get_data_ptr_wrapper(const ConstantHandle& constant) { return constant.data_ptr(); }
inline const ConstantHandle& unwrap_raii_handle_if_needed(const ConstantHandle& handle) {
  return handle;
}
AtenTensorHandle wrap_with_raii_handle_if_needed(const ConstantHandle& handle) = delete;

}  // namespace torch::aot_inductor
