#include "common/tensor.h"

#include <algorithm>
#include <utility>

#include "common/context.h"
#include "common/copy.h"

namespace menagerie {
namespace {

int64_t checked_multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  require(!__builtin_mul_overflow(a, b, &product), "sizes overflow: ", a, " x ", b);
  return product;
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  require(!__builtin_add_overflow(a, b, &sum), "sizes overflow: ", a, " + ", b);
  return sum;
}

void print(std::ostream& text, std::span<const int64_t> numbers) {
  text << '[';
  for (size_t i = 0; i < numbers.size(); ++i) text << (i ? ", " : "") << numbers[i];
  text << ']';
}

}  // namespace

std::shared_ptr<Storage> Storage::allocate(const std::shared_ptr<Arena>& arena, size_t bytes) {
  std::shared_ptr<Storage> storage(new Storage(nullptr, bytes));
  storage->block_ = arena->allocate(bytes);
  storage->arena_ = arena;
  storage->data_ = storage->block_.data;
  return storage;
}

std::shared_ptr<Storage> Storage::borrow(void* data, size_t bytes) {
  return std::shared_ptr<Storage>(new Storage(data, bytes));
}

std::shared_ptr<Storage> Storage::constant(const void* data, size_t bytes,
                                           std::shared_ptr<const void> owner) {
  // The ABI has no const; writing to a constant faults, as its pages are read-only.
  std::shared_ptr<Storage> storage(new Storage(const_cast<void*>(data), bytes));
  storage->owner_ = std::move(owner);
  storage->constant_ = true;
  return storage;
}

std::shared_ptr<Storage> Storage::behind(std::shared_ptr<const NarrowRows> narrow, size_t bytes,
                                         bool with_device, Make make) {
  std::shared_ptr<Storage> storage(new Storage(nullptr, bytes));
  storage->narrow_ = std::move(narrow);
  storage->constant_ = true;
  storage->later_.reset(new Later{with_device, std::move(make), {}, nullptr});
  return storage;
}

const Storage& Storage::made_of(Later& later) {
  std::call_once(later.once, [&] {
    later.made = later.make();
    later.make = nullptr;
  });
  return *later.made;
}

std::shared_ptr<Storage> Storage::mapped(const void* data, size_t bytes,
                                         std::shared_ptr<const void> owner) {
  std::shared_ptr<Storage> storage = constant(data, bytes, std::move(owner));
  storage->mapped_ = true;
  return storage;
}

std::shared_ptr<Storage> Storage::on_device(std::shared_ptr<DeviceMemory> memory, size_t offset,
                                            size_t bytes, std::shared_ptr<const void> owner) {
  std::shared_ptr<Storage> storage(
      new Storage(static_cast<std::byte*>(memory->contents()) + offset, bytes));
  storage->device_ = std::move(memory);
  storage->device_offset_ = offset;
  storage->owner_ = std::move(owner);
  return storage;
}

std::shared_ptr<Storage> Storage::constant_on_device(std::shared_ptr<DeviceMemory> memory,
                                                     size_t offset, size_t bytes,
                                                     std::shared_ptr<const void> owner) {
  auto storage = on_device(std::move(memory), offset, bytes, std::move(owner));
  storage->constant_ = true;
  return storage;
}

Storage::~Storage() {
  if (arena_) arena_->release(block_);
}

int64_t Tensor::elements() const {
  int64_t count = 1;
  for (const int64_t axis : sizes()) count *= axis;
  return count;
}

bool Tensor::is_contiguous() const {
  if (empty()) return true;  // whatever its strides, as in torch
  int64_t expected = 1;
  for (int32_t axis = dimensions; axis-- > 0;) {
    if (size[axis] == 1) continue;
    if (stride[axis] != expected) return false;
    expected *= size[axis];
  }
  return true;
}

std::ostream& operator<<(std::ostream& text, const Tensor& tensor) {
  text << info(tensor.dtype).name;
  print(text, tensor.sizes());
  if (!tensor.is_contiguous()) {
    text << " strides ";
    print(text, tensor.strides());
  }
  return text;
}

int64_t extent(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  int64_t last = 0;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    require(sizes[axis] >= 0, "size ", sizes[axis], " of axis ", axis, " is negative");
    require(strides[axis] >= 0, "stride ", strides[axis], " of axis ", axis, " is negative");
  }
  if (std::ranges::find(sizes, 0) != sizes.end()) return 0;
  int64_t elements = 1;  // strides of zero can make them more than the memory holds
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    elements = checked_multiply(elements, sizes[axis]);
    last = checked_add(last, checked_multiply(sizes[axis] - 1, strides[axis]));
  }
  return checked_add(last, 1);
}

Tensor make_view(std::shared_ptr<Storage> storage, Dtype dtype, std::span<const int64_t> sizes,
                 std::span<const int64_t> strides, int64_t offset_elements) {
  require(sizes.size() <= kMaxDimensions, sizes.size(), " axes exceed the limit of ",
          kMaxDimensions);
  require(offset_elements >= 0, "storage offset ", offset_elements, " is negative");
  Tensor view;
  view.dtype = dtype;
  view.dimensions = static_cast<int32_t>(sizes.size());
  std::ranges::copy(sizes, view.size.begin());
  std::ranges::copy(strides, view.stride.begin());
  view.offset_bytes = checked_multiply(offset_elements, element_size(dtype));
  const int64_t touched = extent(sizes, strides);
  const int64_t end =
      checked_add(view.offset_bytes, checked_multiply(touched, element_size(dtype)));
  require(touched == 0 || end <= static_cast<int64_t>(storage->bytes()), "view ", view,
          " at element ", offset_elements, " ends at byte ", end, " of a storage of ",
          storage->bytes());
  view.storage = std::move(storage);
  return view;
}

int64_t bytes_of(Dtype dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  return checked_multiply(extent(sizes, strides), element_size(dtype));
}

Tensor empty_strided(Dtype dtype, std::span<const int64_t> sizes,
                     std::span<const int64_t> strides) {
  const auto bytes = static_cast<size_t>(bytes_of(dtype, sizes, strides));
  auto storage = Storage::allocate(Context::current().arena(), bytes);
  return make_view(std::move(storage), dtype, sizes, strides, 0);
}

Tensor empty_contiguous(Dtype dtype, std::span<const int64_t> sizes) {
  const Extents strides = contiguous_strides(sizes);
  return empty_strided(dtype, sizes, {strides.data(), sizes.size()});
}

Extents strides_like(const Tensor& other) {
  return is_dense(other) ? other.stride : dense_strides_like(other.sizes(), other.strides());
}

Tensor empty_like(const Tensor& other) {
  const Extents strides = strides_like(other);
  return empty_strided(other.dtype, other.sizes(), {strides.data(), other.sizes().size()});
}

Extents contiguous_strides(std::span<const int64_t> sizes) {
  require(sizes.size() <= kMaxDimensions, sizes.size(), " axes exceed the limit of ",
          kMaxDimensions);
  Extents strides{};
  int64_t stride = 1;
  for (size_t axis = sizes.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride = checked_multiply(stride, std::max<int64_t>(sizes[axis], 1));
  }
  return strides;
}

Extents channels_last_strides(std::span<const int64_t> sizes) {
  require(sizes.size() >= 3 && sizes.size() <= kMaxDimensions, "channels-last needs three axes");
  Extents strides{};
  strides[1] = 1;
  int64_t stride = std::max<int64_t>(sizes[1], 1);
  for (size_t axis = sizes.size(); axis-- > 2;) {
    strides[axis] = stride;
    stride = checked_multiply(stride, std::max<int64_t>(sizes[axis], 1));
  }
  strides[0] = stride;
  return strides;
}

Extents dense_strides_like(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  const auto n = static_cast<int32_t>(sizes.size());
  // Order axes from innermost to outermost by an insertion sort, because with ambiguous pairs the
  // order depends on the algorithm.
  std::array<int32_t, kMaxDimensions> order{};
  for (int32_t i = 0; i < n; ++i) order[i] = n - 1 - i;
  const auto compare = [&](int32_t inner, int32_t outer) {
    const int64_t a = strides[inner];
    const int64_t b = strides[outer];
    if (a == 0 || b == 0) return 0;
    if (a != b) return a < b ? -1 : 1;
    return sizes[inner] > sizes[outer] ? 1 : 0;
  };
  for (int32_t i = 1; i < n; ++i) {
    int32_t moving = i;
    for (int32_t below = i - 1; below >= 0; --below) {
      const int order_of_pair = compare(order[below], order[moving]);
      if (order_of_pair < 0) break;
      if (order_of_pair > 0) std::swap(order[below], order[std::exchange(moving, below)]);
    }
  }
  Extents dense{};
  int64_t stride = 1;
  for (int32_t i = 0; i < n; ++i) {
    dense[order[i]] = stride;
    stride = checked_multiply(stride, std::max<int64_t>(sizes[order[i]], 1));
  }
  return dense;
}

bool suggests_channels_last(const Tensor& tensor) {
  const int32_t n = tensor.dimensions;
  if (n != 4 && n != 5) return false;
  if (tensor.stride[1] == 0) return false;
  int64_t least = 0;
  const auto in_order = [&](int32_t axis) {
    if (tensor.size[axis] == 0 || tensor.stride[axis] < least) return false;
    // A batch axis that could as well lie inside the channels is ambiguous, so contiguous.
    if (axis == 0 && least == tensor.stride[1]) return false;
    least = tensor.stride[axis];
    if (tensor.size[axis] > 1) least *= tensor.size[axis];
    return true;
  };
  if (!in_order(1)) return false;
  for (int32_t axis = n - 1; axis >= 2; --axis) {
    if (!in_order(axis)) return false;
  }
  return in_order(0);
}

}  // namespace menagerie
