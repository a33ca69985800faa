// What every shim implementation needs: operands from handles, and handles for results.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "common/backend.h"
#include "common/context.h"
#include "common/error.h"
#include "common/shim_types.h"
#include "common/tensor.h"

namespace menagerie {

inline Tensor& tensor_of(AtenTensorHandle handle) {
  require(handle != nullptr, "a tensor handle is null");
  return *reinterpret_cast<Tensor*>(handle);
}

// Return an operand to compute with; fail if it has no tensor behind it.
inline const Tensor& operand(AtenTensorHandle handle) {
  const Tensor& tensor = tensor_of(handle);
  require(tensor.storage != nullptr, "a tensor handle is undefined");
  return tensor;
}

// Return an operand whose values the host is about to read or write.
inline const Tensor& host_operand(AtenTensorHandle handle) {
  const Tensor& tensor = operand(handle);
  if (tensor.storage->is_on_device()) backend::finish();
  return tensor;
}

inline int32_t device_type_of(const Tensor& tensor) {
  return tensor.storage->is_on_device() ? backend::kDeviceType : kCpuDevice;
}

// Optional tensors come as a pointer to a handle, null for none.
inline const Tensor* optional_operand(AtenTensorHandle* handle) {
  return handle == nullptr || *handle == nullptr ? nullptr : &operand(*handle);
}

inline AtenTensorHandle to_handle(Tensor tensor) {
  return reinterpret_cast<AtenTensorHandle>(new Tensor(std::move(tensor)));
}

inline void give(ValuesAndIndices chosen, AtenTensorHandle* values, AtenTensorHandle* indices) {
  *values = to_handle(std::move(chosen.values));
  *indices = to_handle(std::move(chosen.indices));
}

// Lists come as a pointer and a length.
template <class T>
std::span<const T> list(const T* first, int64_t count) {
  require(count >= 0 && (first != nullptr || count == 0), "a list is malformed");
  return {first, static_cast<size_t>(count)};
}

inline std::span<const int64_t> numbers(const int64_t* first, int64_t count) {
  return list(first, count);
}

// Run a guarded kernel call, counted and timed for its program.
template <class Body>
AOTITorchError kernel(std::string_view function, Body&& body) noexcept {
  return guarded(function, [&] {
    Context& context = Context::current();
    context.count_kernel();
    const TimedKernel timed(context, function);
    body();
  });
}

}  // namespace menagerie
