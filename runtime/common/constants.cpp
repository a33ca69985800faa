// Constants that the generated code queries from the runtime, and calls that have no effect without
// autograd. The values are c10's (DeviceType.h, ScalarType.h, Layout.h, MemoryFormat.h).
#include <string>

#include "common/shim_support.h"

using namespace menagerie;

MENAGERIE_ABI int32_t aoti_torch_device_type_cpu() { return kCpuDevice; }
MENAGERIE_ABI int32_t aoti_torch_device_type_cuda() { return 1; }
MENAGERIE_ABI int32_t aoti_torch_device_type_mps() { return 13; }

MENAGERIE_ABI int32_t aoti_torch_dtype_uint8() { return 0; }
MENAGERIE_ABI int32_t aoti_torch_dtype_int8() { return 1; }
MENAGERIE_ABI int32_t aoti_torch_dtype_int16() { return 2; }
MENAGERIE_ABI int32_t aoti_torch_dtype_int32() { return 3; }
MENAGERIE_ABI int32_t aoti_torch_dtype_int64() { return 4; }
MENAGERIE_ABI int32_t aoti_torch_dtype_float16() { return 5; }
MENAGERIE_ABI int32_t aoti_torch_dtype_float32() { return 6; }
MENAGERIE_ABI int32_t aoti_torch_dtype_float64() { return 7; }
MENAGERIE_ABI int32_t aoti_torch_dtype_complex64() { return 9; }
MENAGERIE_ABI int32_t aoti_torch_dtype_complex128() { return 10; }
MENAGERIE_ABI int32_t aoti_torch_dtype_bool() { return 11; }
MENAGERIE_ABI int32_t aoti_torch_dtype_bfloat16() { return 15; }
MENAGERIE_ABI int32_t aoti_torch_dtype_uint16() { return 27; }
MENAGERIE_ABI int32_t aoti_torch_dtype_uint32() { return 28; }
MENAGERIE_ABI int32_t aoti_torch_dtype_uint64() { return 29; }

MENAGERIE_ABI size_t aoti_torch_dtype_element_size(int32_t dtype) {
  size_t bytes = 0;  // for a dtype that the runtime does not know
  guarded(__func__, [&] { bytes = static_cast<size_t>(element_size(to_dtype(dtype))); });
  return bytes;
}

MENAGERIE_ABI int32_t aoti_torch_layout_strided() { return 0; }

MENAGERIE_ABI int32_t aoti_torch_memory_format_contiguous_format() { return 0; }
MENAGERIE_ABI int32_t aoti_torch_memory_format_preserve_format() { return 1; }
MENAGERIE_ABI int32_t aoti_torch_memory_format_channels_last() { return 2; }
MENAGERIE_ABI int32_t aoti_torch_memory_format_channels_last_3d() { return 3; }

MENAGERIE_ABI bool aoti_torch_grad_mode_is_enabled() { return false; }
MENAGERIE_ABI void aoti_torch_grad_mode_set_enabled(bool) {}

MENAGERIE_ABI void aoti_torch_check(bool cond, const char* func, const char*, uint32_t,
                                    const char* msg) {
  if (cond) return;
  const std::string fact = std::string("a check failed: ") + (msg != nullptr ? msg : "");
  set_last_error(func != nullptr ? func : __func__, fact);
  // The function returns nothing, and its caller would go on to use the invalid value: only an
  // exception stops it. The library's own C functions catch it.
  throw Error(last_error());
}

MENAGERIE_ABI void aoti_torch_warn(const char*, const char*, uint32_t, const char*) {}

MENAGERIE_SHIM aoti_torch_proxy_executor_call_function(AOTIProxyExecutorHandle,
                                                       int extern_node_index, int, int64_t*, int,
                                                       AtenTensorHandle*) {
  return guarded(__func__, [&] {
    fail("operator number ", extern_node_index, " needs PyTorch's dispatcher, which is not here");
  });
}

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
  Tensor tensor = menagerie::empty_contiguous(dtype, {});
  *tensor.data<T>() = value;
  return to_handle(std::move(tensor));
}

}  // namespace

#define MENAGERIE_SCALAR(name, type, dtype)                                              \
  MENAGERIE_SHIM aoti_torch_item_##name(AtenTensorHandle tensor, type* ret_value) {      \
    return guarded(__func__, [&] { read_item(tensor, dtype, ret_value); });              \
  }                                                                                      \
  MENAGERIE_SHIM aoti_torch_scalar_to_tensor_##name(type value, AtenTensorHandle* ret) { \
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
