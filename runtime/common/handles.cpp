// Tensor handles of the shim ABI: creation, views, queries and release.
#include <algorithm>

#include "common/backend.h"
#include "common/copy.h"
#include "common/shim_support.h"

using namespace menagerie;

namespace {

void check_strided(int32_t layout, int64_t metadata_size) {
  require(layout == 0 && metadata_size == 0, "layout ", layout, " with ", metadata_size,
          " bytes of metadata is not supported, only strided tensors are");
}

// Return a tensor over the caller's memory; its storage spans data to the last element.
Tensor over_blob(void* data, std::span<const int64_t> sizes, std::span<const int64_t> strides,
                 int64_t offset, int32_t dtype_number, int32_t device_type) {
  const Dtype dtype = to_dtype(dtype_number);
  require(offset >= 0, "storage offset ", offset, " is negative");
  const int64_t touched = extent(sizes, strides);
  require(data != nullptr || touched == 0, "the data pointer is null");
  if (data == nullptr) offset = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
  require(!__builtin_add_overflow(touched == 0 ? 0 : offset, touched, &elements) &&
              !__builtin_mul_overflow(elements, element_size(dtype), &bytes),
          "sizes overflow");
  return make_view(backend::borrow(device_type, data, static_cast<size_t>(bytes)), dtype, sizes,
                   strides, offset);
}

// Return a new uninitialised tensor in a device's memory.
Tensor empty_on(int32_t device_type, Dtype dtype, std::span<const int64_t> sizes,
                std::span<const int64_t> strides) {
  const auto bytes = static_cast<size_t>(bytes_of(dtype, sizes, strides));
  return make_view(backend::allocate(device_type, bytes), dtype, sizes, strides, 0);
}

int64_t axis_of(const Tensor& tensor, int64_t axis) {
  require(axis >= -tensor.dimensions && axis < tensor.dimensions, "axis ", axis, " is not in ",
          tensor);
  return axis < 0 ? axis + tensor.dimensions : axis;
}

// The ABI returns pointers to non-const, but nothing is written through them.
int64_t* borrowed(const Extents& extents) { return const_cast<int64_t*>(extents.data()); }

// Fail if an element of the target would be written more than once.
void check_written(const Tensor& target) {
  if (target.empty()) return;
  for (int32_t axis = 0; axis < target.dimensions; ++axis) {
    require(target.stride[axis] != 0 || target.size[axis] <= 1, "elements of the target ", target,
            " share memory");
  }
}

// Return whether the elements of both occupy the same bytes, one by one.
bool same_places(const Tensor& a, const Tensor& b) {
  return element_size(a.dtype) == element_size(b.dtype) && a.raw() == b.raw() &&
         std::ranges::equal(a.sizes(), b.sizes()) && std::ranges::equal(a.strides(), b.strides());
}

int64_t whole_elements(int64_t bytes, Dtype dtype) {
  require(bytes % element_size(dtype) == 0, bytes, " bytes are not whole elements of ",
          info(dtype).name);
  return bytes / element_size(dtype);
}

int64_t offset_of(const Tensor& tensor) {
  return whole_elements(tensor.offset_bytes, tensor.dtype);
}

}  // namespace

MENAGERIE_SHIM aoti_torch_empty_strided(int64_t ndim, const int64_t* sizes_ptr,
                                        const int64_t* strides_ptr, int32_t dtype,
                                        int32_t device_type, int32_t, AtenTensorHandle* ret) {
  return guarded(__func__, [&] {
    *ret = to_handle(empty_on(device_type, to_dtype(dtype), numbers(sizes_ptr, ndim),
                              numbers(strides_ptr, ndim)));
  });
}

MENAGERIE_SHIM aoti_torch_create_tensor_from_blob(
    void* data, int64_t ndim, const int64_t* sizes_ptr, const int64_t* strides_ptr,
    int64_t storage_offset, int32_t dtype, int32_t device_type, int32_t, AtenTensorHandle* ret) {
  return guarded(__func__, [&] {
    *ret = to_handle(over_blob(data, numbers(sizes_ptr, ndim), numbers(strides_ptr, ndim),
                               storage_offset, dtype, device_type));
  });
}

MENAGERIE_SHIM aoti_torch_create_tensor_from_blob_v2(
    void* data, int64_t ndim, const int64_t* sizes_ptr, const int64_t* strides_ptr,
    int64_t storage_offset, int32_t dtype, int32_t device_type, int32_t, AtenTensorHandle* ret,
    int32_t layout, const uint8_t*, int64_t opaque_metadata_size) {
  return guarded(__func__, [&] {
    check_strided(layout, opaque_metadata_size);
    *ret = to_handle(over_blob(data, numbers(sizes_ptr, ndim), numbers(strides_ptr, ndim),
                               storage_offset, dtype, device_type));
  });
}

MENAGERIE_SHIM aoti_torch__reinterpret_tensor(AtenTensorHandle self, int64_t ndim,
                                              const int64_t* sizes_ptr, const int64_t* strides_ptr,
                                              int64_t offset_increment, AtenTensorHandle* ret) {
  return guarded(__func__, [&] {
    const Tensor& base = operand(self);
    int64_t offset = 0;
    require(!__builtin_add_overflow(offset_of(base), offset_increment, &offset), "sizes overflow");
    *ret = to_handle(make_view(base.storage, base.dtype, numbers(sizes_ptr, ndim),
                               numbers(strides_ptr, ndim), offset));
  });
}

MENAGERIE_SHIM aoti_torch__alloc_from_pool(AtenTensorHandle self, int64_t offset_bytes,
                                           int32_t dtype, int64_t ndim, const int64_t* sizes_ptr,
                                           const int64_t* strides_ptr, AtenTensorHandle* ret) {
  return guarded(__func__, [&] {
    const Dtype element = to_dtype(dtype);
    const Tensor& pool = operand(self);
    require(pool.offset_bytes == 0, "a pool begins at byte ", pool.offset_bytes,
            " of its storage, not at 0");
    *ret = to_handle(make_view(pool.storage, element, numbers(sizes_ptr, ndim),
                               numbers(strides_ptr, ndim), whole_elements(offset_bytes, element)));
  });
}

MENAGERIE_SHIM aoti_torch_as_strided(AtenTensorHandle self, const int64_t* sizes_ptr,
                                     const int64_t* strides_ptr, AtenTensorHandle* ret) {
  return guarded(__func__, [&] {
    const Tensor& base = operand(self);
    *ret = to_handle(make_view(base.storage, base.dtype, numbers(sizes_ptr, base.dimensions),
                               numbers(strides_ptr, base.dimensions), offset_of(base)));
  });
}

MENAGERIE_SHIM aoti_torch_new_tensor_handle(AtenTensorHandle orig_handle, AtenTensorHandle* ret) {
  return guarded(__func__, [&] {
    auto second = std::make_unique<Tensor>(tensor_of(orig_handle));
    *ret = reinterpret_cast<AtenTensorHandle>(second.get());
    Tensors* keeper = Context::current().second_handles();
    if (keeper == nullptr) {
      second.release();  // the caller's from here on
    } else {
      keeper->push_back(std::move(second));
    }
  });
}

MENAGERIE_SHIM aoti_torch_new_uninitialized_tensor(AtenTensorHandle* ret) {
  return guarded(__func__, [&] { *ret = to_handle(Tensor()); });
}

MENAGERIE_SHIM aoti_torch_assign_tensors_out(AtenTensorHandle src, AtenTensorHandle* ret_dst) {
  return guarded(__func__, [&] { *ret_dst = to_handle(tensor_of(src)); });
}

MENAGERIE_SHIM aoti_torch_delete_tensor_object(AtenTensorHandle tensor) {
  return guarded(__func__, [&] { delete reinterpret_cast<Tensor*>(tensor); });
}

MENAGERIE_SHIM aoti_torch_clone(AtenTensorHandle self, AtenTensorHandle* ret) {
  return guarded(__func__, [&] { *ret = to_handle(backend::clone(operand(self))); });
}

MENAGERIE_SHIM aoti_torch_clone_preserve_strides(AtenTensorHandle self, AtenTensorHandle* ret) {
  return guarded(__func__, [&] {
    const Tensor& source = operand(self);
    Tensor fresh = empty_on(device_type_of(source), source.dtype, source.sizes(), source.strides());
    // Strides may make elements share memory, so bytes are copied instead of elements.
    backend::copy_bytes(source, fresh, fresh.storage->bytes());
    *ret = to_handle(std::move(fresh));
  });
}

MENAGERIE_SHIM aoti_torch_copy_(AtenTensorHandle self, AtenTensorHandle src, int32_t) {
  return guarded(__func__, [&] {
    const Tensor& source = operand(src);
    const Tensor& target = operand(self);
    const bool same = same_places(source, target);
    if (same && source.dtype == target.dtype) return;
    check_written(target);
    // As in torch, dense tensors that overlap in part are refused, interleaved rows are not.
    const bool woven = overlap(source, target);
    require(!woven || same || !is_dense(source) || !is_dense(target),
            "source and target of a copy overlap");
    backend::assign(woven ? backend::clone(source) : source, target);
  });
}

MENAGERIE_SHIM aoti_torch_zero_(AtenTensorHandle self) {
  return guarded(__func__, [&] { backend::fill_zero(operand(self)); });
}

MENAGERIE_SHIM aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** ret_data_ptr) {
  return guarded(__func__, [&] {
    const Tensor& self = host_operand(tensor);
    *ret_data_ptr = self.empty() ? nullptr : self.raw();
  });
}

MENAGERIE_SHIM aoti_torch_get_storage_size(AtenTensorHandle tensor, int64_t* ret_size) {
  return guarded(__func__,
                 [&] { *ret_size = static_cast<int64_t>(operand(tensor).storage->bytes()); });
}

MENAGERIE_SHIM aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* ret_dim) {
  return guarded(__func__, [&] { *ret_dim = operand(tensor).dimensions; });
}

MENAGERIE_SHIM aoti_torch_get_numel(AtenTensorHandle tensor, int64_t* ret_numel) {
  return guarded(__func__, [&] { *ret_numel = operand(tensor).elements(); });
}

MENAGERIE_SHIM aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t** ret_sizes) {
  return guarded(__func__, [&] { *ret_sizes = borrowed(operand(tensor).size); });
}

MENAGERIE_SHIM aoti_torch_get_size(AtenTensorHandle tensor, int64_t d, int64_t* ret_size) {
  return guarded(__func__, [&] {
    const Tensor& self = operand(tensor);
    *ret_size = self.size[axis_of(self, d)];
  });
}

MENAGERIE_SHIM aoti_torch_get_strides(AtenTensorHandle tensor, int64_t** ret_strides) {
  return guarded(__func__, [&] { *ret_strides = borrowed(operand(tensor).stride); });
}

MENAGERIE_SHIM aoti_torch_get_stride(AtenTensorHandle tensor, int64_t d, int64_t* ret_stride) {
  return guarded(__func__, [&] {
    const Tensor& self = operand(tensor);
    *ret_stride = self.stride[axis_of(self, d)];
  });
}

MENAGERIE_SHIM aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t* ret_dtype) {
  return guarded(__func__, [&] { *ret_dtype = static_cast<int32_t>(operand(tensor).dtype); });
}

MENAGERIE_SHIM aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t* ret_device_type) {
  return guarded(__func__, [&] { *ret_device_type = device_type_of(operand(tensor)); });
}

MENAGERIE_SHIM aoti_torch_get_storage_offset(AtenTensorHandle tensor, int64_t* ret_offset) {
  return guarded(__func__, [&] { *ret_offset = offset_of(operand(tensor)); });
}
