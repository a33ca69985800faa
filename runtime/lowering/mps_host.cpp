// Gives a torch without Metal an `mps` device in host memory: enough for tensors to live there
// while Inductor generates Metal code, and for what it computes of constants meanwhile, done by the
// CPU's kernels. Never loaded where torch has the real one.
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

using c10::DeviceType;
using Layout = std::optional<c10::Layout>;
using Device = std::optional<c10::Device>;

C10_REGISTER_GUARD_IMPL(MPS, c10::impl::NoOpDeviceGuardImpl<DeviceType::MPS>);

// Memory of the CPU's allocator under another device's name.
class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(bytes);
    void* data = memory.get();
    c10::DeleterFnPtr deleter = memory.get_deleter();
    return {data, memory.release_context(), deleter, c10::Device(DeviceType::MPS, 0)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

HostAllocator host_allocator;
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::MPS);

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, Layout, Device,
                 std::optional<bool> /*pin_memory*/, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &host_allocator, kKeys, c10::dtype_or_default(dtype),
                                   format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, Layout, Device,
                         std::optional<bool> /*pin_memory*/) {
  return at::detail::empty_strided_generic(sizes, strides, &host_allocator, kKeys,
                                           c10::dtype_or_default(dtype));
}

// The same elements as a tensor of the CPU, without a copy.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (!tensor.is_mps()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool /*non_blocking*/) {
  on_cpu(self).copy_(on_cpu(source));
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
  on_cpu(target).copy_(on_cpu(source));
  return target;
}

const at::Tensor& resized(const at::Tensor& self, c10::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!format.has_value() || *format == at::MemoryFormat::Contiguous,
              "mps in host memory: resize_ knows contiguous tensors only");
  c10::TensorImpl* tensor = self.unsafeGetTensorImpl();
  const size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, tensor->dtype().itemsize(),
                                                                  tensor->storage_offset());
  if (const c10::Storage& storage = tensor->storage(); storage.nbytes() < bytes) {
    c10::DataPtr grown = host_allocator.allocate(bytes);
    host_allocator.copy_data(grown.get(), storage.data(), storage.nbytes());
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(grown));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
  tensor->set_sizes_contiguous(sizes);
  return self;
}

// Called by the CPU's fallback for what an out-variant gave; `target` may be empty yet.
at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (source.sizes() != target.sizes()) resized(target, source.sizes(), std::nullopt);
  return copy_from(source, target, false);
}

at::Scalar item(const at::Tensor& tensor) { return on_cpu(tensor).item(); }

void compute_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, MPS, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, MPS, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("resize_", TORCH_FN(resized));
  library.impl("copy_", TORCH_FN(copy));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(item));
}

}  // namespace
