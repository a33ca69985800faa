#include "metal/operands.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "common/error.h"
#include "metal/dispatch.h"

namespace menagerie::metal {

std::string metal_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kUInt8:
      return "uchar";
    case Dtype::kInt8:
      return "char";
    case Dtype::kInt16:
      return "short";
    case Dtype::kInt32:
      return "int";
    case Dtype::kInt64:
      return "long";
    case Dtype::kFloat16:
      return "half";
    case Dtype::kFloat32:
      return "float";
    case Dtype::kBool:
      return "bool";
    case Dtype::kBFloat16:
      return "bfloat";
    default:
      fail("Metal has no ", info(dtype).name);
  }
}

Tensor converted(const Tensor& tensor, Dtype dtype) {
  if (tensor.dtype == dtype) return dense(tensor);
  Tensor fresh = metal::empty_contiguous(dtype, tensor.sizes());
  metal::copy(tensor, fresh);
  return fresh;
}

Dtype wide(Dtype dtype) {
  require(dtype != Dtype::kFloat64, "Metal has no float64");
  return is_floating(dtype) ? Dtype::kFloat32 : Dtype::kInt64;
}

Rows rows_along(const Tensor& tensor, int32_t axis) {
  Rows rows;
  for (int32_t i = 0; i < tensor.dimensions; ++i) {
    (i < axis ? rows.outer : i > axis ? rows.inner : rows.length) *= tensor.size[i];
  }
  return rows;
}

int32_t narrow(int64_t extent) {
  require(extent >= 0 && extent <= std::numeric_limits<int32_t>::max(), "an extent of ", extent,
          " is more than a kernel over images counts");
  return static_cast<int32_t>(extent);
}

uint64_t threads_for(int64_t elements) {
  require(elements >= 0 && elements <= UINT32_MAX, elements, " threads are more than a kernel has");
  return static_cast<uint64_t>(elements);
}

uint64_t threads_for(const Tensor& tensor) { return threads_for(tensor.elements()); }

namespace {

constexpr size_t kWidest = 16;

size_t address_of(const Region& region) {
  return reinterpret_cast<size_t>(region.buffer->contents()) + region.offset;
}

// The most bytes a thread may take where these addresses and lengths are whole numbers of them.
size_t unit_of(size_t of_all) { return size_t{1} << std::countr_zero(of_all | kWidest); }

void encode(const std::string& function, const Arguments& arguments, size_t unit, size_t bytes) {
  dispatch("bytes", function + std::to_string(unit), arguments,
           threads_for(static_cast<int64_t>(bytes / unit)));
}

}  // namespace

void copy_bytes(const Region& from, const Region& to, size_t bytes) {
  const size_t unit = unit_of(address_of(from) | address_of(to) | bytes);
  encode("copy_units_", Arguments(from, to), unit, bytes);
}

void clear_bytes(const Region& to, size_t bytes) {
  encode("clear_units_", Arguments(to), unit_of(address_of(to) | bytes), bytes);
}

namespace {

// As copy.metal has it: axes from outermost to innermost, strides in elements.
constexpr size_t kLoops = 8;
struct Loops {
  int32_t count = 0;
  std::array<int64_t, kLoops> size{}, from{}, to{};
};

// The axes of a copy, merged where both sides go on without a gap.
Loops loops_of(const Tensor& source, const Tensor& target) {
  Loops loops;
  for (int32_t axis = 0; axis < source.dimensions; ++axis) {
    const int64_t size = source.size[axis];
    const int64_t from = source.stride[axis];
    const int64_t to = target.stride[axis];
    if (size == 1) continue;
    if (const int32_t last = loops.count - 1;
        last >= 0 && loops.from[last] == from * size && loops.to[last] == to * size) {
      loops.size[last] *= size;
      loops.from[last] = from;
      loops.to[last] = to;
      continue;
    }
    require(loops.count < static_cast<int32_t>(kLoops), "copying ", source, " into ", target,
            " needs more than ", kLoops, " loops");
    loops.size[loops.count] = size;
    loops.from[loops.count] = from;
    loops.to[loops.count] = to;
    ++loops.count;
  }
  return loops;
}

bool is_flat(const Loops& loops) {
  return loops.count == 0 || (loops.count == 1 && loops.from[0] == 1 && loops.to[0] == 1);
}

Tensor copied(const Tensor& tensor, std::span<const int64_t> strides) {
  Tensor fresh = metal::empty_strided(tensor.dtype, tensor.sizes(), strides);
  metal::copy(tensor, fresh);
  return fresh;
}

}  // namespace

void copy(const Tensor& source, const Tensor& target) {
  require(std::ranges::equal(source.sizes(), target.sizes()), "cannot copy ", source, " into ",
          target);
  if (source.empty()) return;
  const auto elements = static_cast<uint64_t>(source.elements());
  require(elements <= UINT32_MAX, "cannot copy ", source, ": more elements than a kernel counts");
  const Loops loops = loops_of(source, target);
  const int64_t width = element_size(source.dtype);
  const bool converts = source.dtype != target.dtype;
  if (!converts && is_flat(loops)) {
    return copy_bytes(region_of(source), region_of(target),
                      elements * static_cast<uint64_t>(width));
  }
  Arguments arguments(source, target, loops.count, loops.size, loops.from, loops.to);
  if (!converts) return dispatch("copy", "copy_" + std::to_string(width), arguments, elements);
  require(source.dtype != Dtype::kFloat64 && target.dtype != Dtype::kFloat64,
          "Metal has no float64, so ", source, " cannot be converted into ", target);
  arguments.add(static_cast<int32_t>(source.dtype)).add(static_cast<int32_t>(target.dtype));
  dispatch("copy", "convert", arguments, elements);
}

bool has_strides(const Tensor& tensor, std::span<const int64_t> strides) {
  for (int32_t axis = 0; axis < tensor.dimensions; ++axis) {
    if (tensor.size[axis] != 1 && tensor.stride[axis] != strides[axis]) return false;
  }
  return true;
}

Tensor with_strides(const Tensor& tensor, std::span<const int64_t> strides) {
  if (has_strides(tensor, strides) || tensor.empty()) return tensor;
  if (!tensor.storage->is_constant()) return copied(tensor, strides);
  Key key("dense");
  key.add(tensor.storage.get()).add(tensor.offset_bytes).add(static_cast<int64_t>(tensor.dtype));
  key.add(tensor.sizes()).add(tensor.strides()).add(strides);
  const auto make = [&] {
    return std::make_shared<DenseConstant>(tensor.storage, copied(tensor, strides));
  };
  return State::current().dense_constants().get<DenseConstant>(key, make)->copy;
}

Tensor matrices_of(const Tensor& tensor, int64_t batch, int64_t rows, int64_t columns) {
  Tensor view = tensor;
  view.dimensions = 3;
  view.size = {batch, rows, columns};
  view.stride = {rows * columns, columns, 1};
  return view;
}

Tensor dense(const Tensor& tensor) {
  const Extents strides = contiguous_strides(tensor.sizes());
  return with_strides(tensor, {strides.data(), tensor.sizes().size()});
}

}  // namespace menagerie::metal
