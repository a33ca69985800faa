// Inserted into every wrapper: gives a fallback kernel's result the strides that the generated code
// around it counts on. Kernels choose their output's layout by rules of their own (torch's depend
// on the thread count); loops index by what code generation assumed. Equal in nearly every case,
// and then this only compares; where they differ, one copy makes the result right.
#pragma once

#include <algorithm>
#include <initializer_list>

namespace torch::aot_inductor {

inline bool has_strides(const int64_t* sizes, const int64_t* strides,
                        std::initializer_list<int64_t> expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (sizes[i] > 1 && strides[i] != expected.begin()[i]) return false;
  }
  return true;
}

inline void lay_out(RAIIAtenTensorHandle& tensor, std::initializer_list<int64_t> sizes,
                    std::initializer_list<int64_t> strides, const char* kernel) {
  int64_t rank = 0, count = 0;
  int64_t *actual_sizes = nullptr, *actual_strides = nullptr;
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(tensor.get(), &rank));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_numel(tensor.get(), &count));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor.get(), &actual_sizes));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor.get(), &actual_strides));
  AOTI_RUNTIME_CHECK(rank == static_cast<int64_t>(sizes.size()) &&
                         std::equal(sizes.begin(), sizes.end(), actual_sizes),
                     std::string(kernel) + " returned another shape than was compiled for");
  if (count == 0 || has_strides(actual_sizes, actual_strides, strides)) return;
  int32_t dtype = 0, device = 0;
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &device));
  AtenTensorHandle fresh = nullptr;
  AOTI_TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(rank, sizes.begin(), strides.begin(), dtype, device, 0, &fresh));
  RAIIAtenTensorHandle result(fresh);
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(fresh, tensor.get(), 0));
  tensor = std::move(result);
}

}  // namespace torch::aot_inductor
// Inserted into every wrapper: describes a constant to AOTInductor. Not inlined, since the compiler
// would see eleven assignments for each constant again.

#include <cstdint>
#include <initializer_list>

namespace torch::aot_inductor {

template <class Info>
[[gnu::noinline]] void describe(Info& info, const char* name, int32_t dtype, int32_t device_type,
                                int64_t offset, size_t data_size, bool from_folded, int32_t type,
                                std::initializer_list<int64_t> shape,
                                std::initializer_list<int64_t> stride, int32_t layout,
                                const char* original_fqn) {
  info.name = name;
  info.dtype = dtype;
  info.device_type = device_type;
  info.offset = offset;
  info.data_size = data_size;
  info.from_folded = from_folded;
  info.type = type;
  info.shape = shape;
  info.stride = stride;
  info.layout = layout;
  info.original_fqn = original_fqn;
}

}  // namespace torch::aot_inductor
