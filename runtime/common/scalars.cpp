// One-element tensors to numbers and back.
#include "common/shim_support.h"

using namespace menagerie;

namespace {

template <class T>
void read_item(AtenTensorHandle handle, Dtype dtype, T* value) {
  const Tensor& tensor = host_operand(handle);
  require(tensor.dtype == dtype && tensor.elements() == 1, "wants one element of ",
          info(dtype).name, ", not ", tensor);
  *value = *tensor.data<T>();
}

template <class T>
AtenTensorHandle wrap(T value, Dtype dtype) {
  Tensor tensor = empty_contiguous(dtype, {});
  *tensor.data<T>() = value;
  return to_handle(std::move(tensor));
}

}  // namespace

#define MENAGERIE_SCALAR(name, type, dtype)                                              \
  AOTITorchError aoti_torch_item_##name(AtenTensorHandle tensor, type* ret_value) {      \
    return guarded(__func__, [&] { read_item(tensor, dtype, ret_value); });              \
  }                                                                                      \
  AOTITorchError aoti_torch_scalar_to_tensor_##name(type value, AtenTensorHandle* ret) { \
    return guarded(__func__, [&] { *ret = wrap(value, dtype); });                        \
  }

MENAGERIE_SCALAR(float32, float, Dtype::kFloat32)
MENAGERIE_SCALAR(float64, double, Dtype::kFloat64)
MENAGERIE_SCALAR(uint8, uint8_t, Dtype::kUInt8)
MENAGERIE_SCALAR(int8, int8_t, Dtype::kInt8)
MENAGERIE_SCALAR(int16, int16_t, Dtype::kInt16)
MENAGERIE_SCALAR(int32, int32_t, Dtype::kInt32)
MENAGERIE_SCALAR(int64, int64_t, Dtype::kInt64)
MENAGERIE_SCALAR(bool, bool, Dtype::kBool)

#undef MENAGERIE_SCALAR
