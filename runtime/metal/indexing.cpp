// Reading, writing and combining elements by lists of positions on the device, and scattering along
// an axis. Sums are made in float32 or int64.
#include <array>
#include <limits>
#include <string>

#include "common/backend.h"
#include "common/copy.h"
#include "common/operators.h"
#include "metal/dispatch.h"
#include "metal/operands.h"
#include "metal/state.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

constexpr int64_t kIndexThreads = 2048;  // for a GPU to be busy
constexpr int64_t kShortList = 64;       // a list that is not worth three dispatches

// As combine.metal has it.
struct List {
  int64_t count, inner;
  int32_t reduction;
};

// What a kernel writes to when an index is out of range.
Tensor fault() {
  static constexpr const char* kMessage[] = {
      "an index of index, index_put or scatter is out of range"};
  return State::current().fault(kMessage);
}

// The type that a value is combined as; stored ones are bits.
std::string type_of(Dtype dtype, Reduction reduction) {
  if (reduction != Reduction::kStore) return metal_name(dtype);
  switch (element_size(dtype)) {
    case 1:
      return "uchar";
    case 2:
      return "ushort";
    case 4:
      return "uint";
    default:
      return "long";
  }
}

// Whether so many threads that each walk so long a list would leave a GPU idle, and the list is
// better sorted first.
bool is_worth_sorting(int64_t threads, int64_t length) {
  return threads < kIndexThreads && length > kShortList;
}

// to[place, ..] = to[place, ..] <reduction> values[i, ..] for each place i of the list, int64 and
// in range, in the list's order where one comes twice. `to` is memory of whole slices of `inner`
// elements, `values` dense. Only storing takes other types than float32 and int64.
void combine_at(const Tensor& to, const Tensor& values, const Tensor& places, int64_t inner,
                Reduction reduction) {
  const List list{places.elements(), inner, static_cast<int32_t>(reduction)};
  const std::string type = type_of(to.dtype, reduction);
  Arguments arguments(to, values, places, list);
  if (!is_worth_sorting(inner, list.count)) {
    return dispatch("combine", "combine_in_turn_" + type, arguments, threads_for(inner));
  }
  arguments.add(order_of(places, {.length = list.count}, false));
  dispatch("combine", "combine_sorted_" + type, arguments, threads_for(list.count * inner));
}

// A tensor [places, inner]: the indexed axes first, dense.
struct IndexedPlaces {
  Tensor list;  // int64, which places
  int64_t inner = 1;
};

IndexedPlaces places_of(const Tensor& first, const Indices& indices) {
  const int64_t length[] = {indices.count()};
  IndexedPlaces places{metal::empty_contiguous(Dtype::kInt64, length)};
  backend::fill_zero(places.list);
  const auto indexed = static_cast<int32_t>(indices.axes.size());
  for (int32_t axis = indexed; axis < first.dimensions; ++axis) places.inner *= first.size[axis];
  int64_t stride = 1;
  for (int32_t axis = indexed; axis-- > 0;) {
    const Tensor list = dense(indices.lists[static_cast<size_t>(axis)]);
    dispatch("indexing", "add_places",
             Arguments(places.list, list, first.size[axis], stride, fault()),
             threads_for(places.list));
    stride *= first.size[axis];
  }
  return places;
}

void check_not_empty(const Tensor& first, const Indices& indices) {
  for (size_t axis = 0; axis < indices.axes.size(); ++axis) {
    require(first.size[axis] > 0 || indices.count() == 0, "there is nothing to index along axis ",
            indices.axes[axis]);
  }
}

constexpr int32_t kAxes = 8;  // that fit into an argument by value

// As scatter.metal has them.
struct ScatteredRows {
  int64_t length, target, stride;
  int32_t reduction, axes;
};

// A tensor of one value for every element.
Tensor constant(Dtype dtype, double value, std::span<const int64_t> sizes) {
  Tensor one = metal::empty_contiguous(dtype, {});
  Arguments arguments(one);
  if (dtype == Dtype::kFloat32) {
    arguments.add(static_cast<float>(value));
  } else if (value >= 0x1p63) {  // the next double to what int64 holds
    arguments.add(std::numeric_limits<int64_t>::max());
  } else {
    arguments.add(static_cast<int64_t>(value));
  }
  dispatch("scatter", "set_" + metal_name(dtype), arguments, 1);
  return broadcast(one, sizes);
}

// One pass over the index: out = out <reduction> source.
void pass(const Scatter& scatter, const Tensor& out, const Tensor& source, Reduction reduction) {
  const int32_t last = scatter.index.dimensions - 1;
  require(last <= kAxes, "scattering takes at most ", kAxes + 1, " axes, not ", scatter.index);
  const Tensor index = dense(with_axis_moved(scatter.index, scatter.axis, last));
  const Tensor target = with_axis_moved(out, scatter.axis, last);
  const ScatteredRows rows{index.size[last], target.size[last], target.stride[last],
                           static_cast<int32_t>(reduction), last};
  std::array<int64_t, kAxes> size{};
  std::array<int64_t, kAxes> stride{};
  int64_t count = 1;
  for (int32_t axis = 0; axis < last; ++axis) {
    size[axis] = index.size[axis];
    stride[axis] = target.stride[axis];
    count *= index.size[axis];
  }
  const Tensor values = dense(with_axis_moved(source, scatter.axis, last));
  if (is_worth_sorting(count, rows.length)) {
    const Tensor places = metal::empty_contiguous(Dtype::kInt64, index.sizes());
    dispatch("scatter", "list_places", Arguments(places, index, rows, size, stride, fault()),
             threads_for(places));
    return combine_at(out, values, places, 1, reduction);
  }
  dispatch("scatter", "scatter_" + metal_name(out.dtype),
           Arguments(out, index, values, rows, size, stride, fault()), threads_for(count));
}

// What combines with any value to that value.
double neutral(Reduction reduction, Dtype dtype) {
  const bool whole = dtype == Dtype::kInt64;
  const double largest = whole ? 0x1p63 : std::numeric_limits<double>::infinity();
  switch (reduction) {
    case Reduction::kMultiply:
      return 1;
    case Reduction::kLargest:
      return -largest;
    case Reduction::kSmallest:
      return largest;
    default:
      return 0;
  }
}

void divide(const Scatter& scatter, const Tensor& sum) {
  const double start = scatter.include_self ? 1 : 0;
  const Tensor count = dense(constant(sum.dtype, start, sum.sizes()));
  pass(scatter, count, constant(sum.dtype, 1, scatter.index.sizes()), Reduction::kCount);
  dispatch("scatter", "divide_" + metal_name(sum.dtype), Arguments(sum, count), threads_for(sum));
}

}  // namespace

Tensor backend::read_at(const Tensor& self, const Indices& indices) {
  const Tensor first = dense(indices.indexed_first(self));
  const Tensor out = metal::empty_contiguous(self.dtype, indices.result_sizes(self));
  if (out.empty()) return dense(indices.arranged(out));
  check_not_empty(first, indices);
  const IndexedPlaces places = places_of(first, indices);
  dispatch("indexing", "read_" + std::to_string(element_size(self.dtype)),
           Arguments(first, out, places.list, places.inner), threads_for(out));
  return dense(indices.arranged(out));
}

Tensor backend::put_at(const Tensor& self, const Indices& indices, const Tensor& values,
                       bool accumulate) {
  const Dtype dtype = accumulate ? wide(self.dtype) : self.dtype;
  const Tensor first = indices.indexed_first(self);
  const Tensor into = metal::empty_contiguous(dtype, first.sizes());
  metal::copy(first, into);
  const Tensor from = converted(values, dtype);
  if (!from.empty()) {
    check_not_empty(first, indices);
    const IndexedPlaces places = places_of(into, indices);
    combine_at(into, from, places.list, places.inner,
               accumulate ? Reduction::kAdd : Reduction::kStore);
  }
  const Extents strides = strides_like(self);
  const Tensor out =
      metal::empty_strided(self.dtype, self.sizes(), {strides.data(), self.sizes().size()});
  metal::copy(indices.indexed_back(into), out);
  return out;
}

Tensor backend::one_value(Dtype dtype, double value) {
  return converted(constant(wide(dtype), value, {}), dtype);
}

void backend::scatter(const Scatter& scatter) {
  const Dtype dtype = wide(scatter.self.dtype);
  const Tensor into = metal::empty_contiguous(dtype, scatter.self.sizes());
  metal::copy(scatter.self, into);
  if (!scatter.index.empty()) {
    const auto sizes = scatter.index.sizes();
    if (!scatter.include_self) {
      pass(scatter, into, constant(dtype, neutral(scatter.reduction, dtype), sizes),
           Reduction::kStore);
    }
    const bool mean = scatter.reduction == Reduction::kMean;
    pass(scatter, into, converted(scatter.source, dtype),
         mean ? Reduction::kAdd : scatter.reduction);
    if (mean && dtype == Dtype::kInt64) {  // sums wrap around in the dtype
      metal::copy(into, scatter.out);
      metal::copy(scatter.out, into);
    }
    if (mean) divide(scatter, into);
  }
  metal::copy(into, scatter.out);
}
