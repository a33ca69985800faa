// The tensor handle behind the shim ABI: shared storage, byte offset, sizes, strides, dtype. A view
// shares its storage and keeps its own offset; nothing is looked up by address.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <ostream>
#include <span>

#include "common/dtype.h"
#include "common/memory.h"

namespace menagerie {

inline constexpr int32_t kCpuDevice = 0;  // c10::DeviceType::CPU
inline constexpr int32_t kMaxDimensions = 16;

struct NarrowRows;  // common/quantised.h

// Memory that a device addresses beside the host, as a storage keeps it. Only the backend that made
// it knows its actual type.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  virtual ~DeviceMemory() = default;

  // Return its address for the host.
  virtual void* contents() const = 0;
};

// A piece of memory and how to release it.
class Storage {
 public:
  // Return fresh memory from an arena, which the storage keeps alive.
  static std::shared_ptr<Storage> allocate(const std::shared_ptr<Arena>& arena, size_t bytes);
  // Wrap the caller's memory, which the caller keeps valid for as long as the storage is used.
  static std::shared_ptr<Storage> borrow(void* data, size_t bytes);
  // Wrap memory that is never written, so that results computed from it may be kept.
  static std::shared_ptr<Storage> constant(const void* data, size_t bytes,
                                           std::shared_ptr<const void> owner);
  // Return a constant of floats that are stored in a narrower type, made when its address is first
  // requested: kernels that read the stored form never request it. `make` returns it in as many
  // bytes, on the device or the host.
  using Make = std::function<std::shared_ptr<Storage>()>;
  static std::shared_ptr<Storage> behind(std::shared_ptr<const NarrowRows> narrow, size_t bytes,
                                         bool with_device, Make make);
  // Wrap a part of the mapped weights: a constant whose pages can be read from the file again.
  static std::shared_ptr<Storage> mapped(const void* data, size_t bytes,
                                         std::shared_ptr<const void> owner);
  // Wrap a part of a device's memory; the owner, null for none, is released with the storage.
  static std::shared_ptr<Storage> on_device(std::shared_ptr<DeviceMemory> memory, size_t offset,
                                            size_t bytes, std::shared_ptr<const void> owner);
  static std::shared_ptr<Storage> constant_on_device(std::shared_ptr<DeviceMemory> memory,
                                                     size_t offset, size_t bytes,
                                                     std::shared_ptr<const void> owner);

  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();

  void* data() const { return made().data_; }
  size_t bytes() const { return bytes_; }
  bool is_constant() const { return constant_; }
  bool is_mapped() const { return mapped_; }
  const NarrowRows* narrow() const { return narrow_.get(); }  // null: none
  // Return whether the memory lives as long as the storage, whatever the caller does.
  bool is_owned() const { return arena_ != nullptr || owner_ != nullptr || later_ != nullptr; }
  bool is_on_device() const { return later_ ? later_->with_device : device_ != nullptr; }
  // Return the device's memory, null for the host's, and the storage's offset in it, in bytes.
  const std::shared_ptr<DeviceMemory>& device() const { return made().device_; }
  size_t device_offset() const { return made().device_offset_; }

 private:
  // A storage made on first use, by whichever thread asks first.
  struct Later {
    bool with_device;
    Make make;
    std::once_flag once;
    std::shared_ptr<Storage> made;
  };

  Storage(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  const Storage& made() const { return later_ ? made_of(*later_) : *this; }
  static const Storage& made_of(Later& later);

  void* data_;
  size_t bytes_;
  bool constant_ = false;
  bool mapped_ = false;
  std::shared_ptr<Arena> arena_;
  Arena::Block block_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const NarrowRows> narrow_;
  std::shared_ptr<DeviceMemory> device_;
  size_t device_offset_ = 0;
  std::unique_ptr<Later> later_;
};

using Extents = std::array<int64_t, kMaxDimensions>;

struct Tensor {
  std::shared_ptr<Storage> storage;
  int64_t offset_bytes = 0;
  Dtype dtype = Dtype::kFloat32;
  int32_t dimensions = 0;
  Extents size{};
  Extents stride{};

  std::span<const int64_t> sizes() const { return {size.data(), static_cast<size_t>(dimensions)}; }
  std::span<const int64_t> strides() const {
    return {stride.data(), static_cast<size_t>(dimensions)};
  }
  int64_t elements() const;
  bool empty() const { return elements() == 0; }
  bool is_contiguous() const;

  void* raw() const { return static_cast<std::byte*>(storage->data()) + offset_bytes; }
  template <class T>
  T* data() const {
    return static_cast<T*>(raw());
  }
};

// Values and their int64 positions.
struct ValuesAndIndices {
  Tensor values, indices;
};

// Print "float32[1, 3, 224, 224] strides [150528, 1, 672, 3]", for messages.
std::ostream& operator<<(std::ostream& text, const Tensor& tensor);

// Return a view of storage with checked geometry: fail if any element would lie outside the
// storage, if a stride or size is negative, or if numbers overflow. The offset counts elements.
Tensor make_view(std::shared_ptr<Storage> storage, Dtype dtype, std::span<const int64_t> sizes,
                 std::span<const int64_t> strides, int64_t offset_elements);

// Return the bytes of memory that a tensor of this geometry needs; fail as make_view does.
int64_t bytes_of(Dtype dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides);

// Return a new uninitialised tensor with these strides in the host's memory, of the current
// context's arena.
Tensor empty_strided(Dtype dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides);
Tensor empty_contiguous(Dtype dtype, std::span<const int64_t> sizes);
// Return a dense tensor of the same sizes and dtype, with the axes in the other's order.
Tensor empty_like(const Tensor& other);
// Return the strides of such a tensor.
Extents strides_like(const Tensor& other);

// Return the number of elements from the first to one past the last touched; 0 if a size is 0.
// Fail if a stride or size is negative, or if numbers overflow, the count of all elements included.
int64_t extent(std::span<const int64_t> sizes, std::span<const int64_t> strides);
Extents contiguous_strides(std::span<const int64_t> sizes);
// Return the strides of a tensor whose axis 1 is innermost (NHWC for four axes, NWC for three).
Extents channels_last_strides(std::span<const int64_t> sizes);
// Return the strides of a dense tensor in the axis order that the given strides suggest, as torch's
// empty_like and clone choose them (at::infer_dense_strides); dense strides are unchanged.
Extents dense_strides_like(std::span<const int64_t> sizes, std::span<const int64_t> strides);
// Return whether a convolution over this tensor yields channels-last, by c10's rule for strides
// (c10/core/MemoryFormat.h, is_channels_last_strides_2d_s4 and its 3d sibling).
bool suggests_channels_last(const Tensor& tensor);

// Return the offset, in elements, of an index, whose last axes may be left out.
inline int64_t offset_of(const Tensor& tensor, std::span<const int64_t> index) {
  return std::inner_product(index.begin(), index.end(), tensor.stride.begin(), int64_t{0});
}

// Check an axis: negative counts from the end; no axes means one row of one element, axis 0.
inline int32_t checked_axis(const Tensor& tensor, int64_t axis) {
  const int64_t axes = std::max(tensor.dimensions, 1);
  require(axis >= -axes && axis < axes, "axis ", axis, " is not in ", tensor);
  return static_cast<int32_t>(axis < 0 ? axis + axes : axis);
}

// Return the number of elements of a row along a checked axis.
inline int64_t row_length(const Tensor& tensor, int32_t axis) {
  return tensor.dimensions == 0 ? 1 : tensor.size[axis];
}

// Return a view with axis `from` moved to `to`; the axes between them shift by one.
inline Tensor with_axis_moved(const Tensor& tensor, int32_t from, int32_t to) {
  Tensor view = tensor;
  const auto turn = [&](Extents& extents) {
    const auto first = extents.begin();
    if (from < to) std::rotate(first + from, first + from + 1, first + to + 1);
    if (from > to) std::rotate(first + to, first + from, first + from + 1);
  };
  turn(view.size);
  turn(view.stride);
  return view;
}

}  // namespace menagerie
