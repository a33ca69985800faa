// Scaled dot-product attention on the device, by one kernel that keeps no scores. Of wide heads,
// and where the device computes large products elsewhere: a product, a softmax with a mask, a
// product. Half precision is computed in single and rounded once at the end.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "common/copy.h"
#include "common/shim_support.h"
#include "metal/dispatch.h"
#include "metal/operands.h"
#include "metal/products.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

// As attention.metal has them.
struct AttentionShape {
  uint32_t heads, sharing, queries, keys, width, columns;
  float scale;
  int32_t causal, mask;
  float hidden;
  uint32_t positions;
};
struct Strides {
  uint32_t batch, head, row, column;
};
enum Mask : int32_t { kNone, kSingle, kSame, kHiding };

constexpr int64_t kQueries = 32;               // of a group
constexpr uint64_t kThreads = 128;             // of a group
constexpr uint64_t kSlices = 8;                // SIMD groups for one query
constexpr int64_t kWidestOne = 256;            // what they hold of a query, and of the result
constexpr int64_t kNarrow = 64, kBroad = 128;  // columns of the result that a group may compute

struct Attention {
  const Tensor& query;  // [B, H, L, E]
  const Tensor& key;    // [B, G, S, E], H a multiple of G
  const Tensor& value;  // [B, G, S, V]
  const Tensor* mask;   // broadcasts to [B, H, L, S]; null: none
  bool causal;
  double scale;
  // Of a relative one: keys of positions [1 or B, H, P, E], what queries add [H, E] before they
  // meet keys, and these; and what a hidden key's score by position is.
  const Tensor* positions = nullptr;
  const Tensor* biases[2]{};
  double hidden = -std::numeric_limits<double>::infinity();
  Tensor output{};  // [B, H, L, V], its columns side by side
};

void check(const Attention& a) {
  const Tensor &q = a.query, &k = a.key, &v = a.value;
  require(q.dimensions == 4 && k.dimensions == 4 && v.dimensions == 4 && k.size[0] == q.size[0] &&
              v.size[0] == q.size[0] && k.size[1] == v.size[1] && k.size[3] == q.size[3] &&
              k.size[2] == v.size[2] && k.size[1] > 0 && q.size[1] % k.size[1] == 0,
          "shapes do not fit: query ", q, ", key ", k, ", value ", v);
  require(is_floating(q.dtype) && q.dtype != Dtype::kFloat64 && q.dtype == k.dtype &&
              q.dtype == v.dtype,
          "query, key and value differ in dtype, or are not floating: ", q, ", ", k, ", ", v);
  if (a.positions == nullptr) return;
  const Tensor& p = *a.positions;
  const bool biased = std::ranges::all_of(a.biases, [&](const Tensor* bias) {
    return bias->dtype == q.dtype && bias->elements() == q.size[1] * q.size[3];
  });
  require(biased && p.dimensions == 4 && p.dtype == q.dtype && q.size[3] <= kBroad &&
              p.size[2] >= q.size[2] + k.size[2] - 1 &&
              (a.mask == nullptr || a.mask->dtype == Dtype::kBool),
          "positions do not fit: ", p, " of query ", q, " and key ", k);
}

Tensor with_axes_swapped(const Tensor& tensor, int first, int second) {
  Tensor view = tensor;
  std::swap(view.size[first], view.size[second]);
  std::swap(view.stride[first], view.stride[second]);
  return view;
}

Strides strides_of(const Tensor& t) {
  int64_t last = 1;
  for (int axis = 0; axis < 4; ++axis) last += (t.size[axis] - 1) * t.stride[axis];
  counted(last);
  return {counted(t.stride[0]), counted(t.stride[1]), counted(t.stride[2]), counted(t.stride[3])};
}

// Whether a kernel of operands of a dtype reads the mask as it is.
bool is_taken(const Attention& a, Dtype dtype) {
  return a.mask == nullptr || a.mask->dtype == Dtype::kBool || a.mask->dtype == dtype;
}

// The mask as such a kernel takes it, the shape, and the mask's strides.
void add_shape(Arguments& arguments, const Attention& a, Dtype dtype) {
  const auto& size = a.query.size;
  AttentionShape shape{counted(size[1]),
                       counted(size[1] / a.key.size[1]),
                       counted(size[2]),
                       counted(a.key.size[2]),
                       counted(size[3]),
                       counted(a.value.size[3]),
                       static_cast<float>(a.scale),
                       a.causal ? 1 : 0,
                       kNone,
                       static_cast<float>(a.hidden),
                       a.positions == nullptr ? 0 : counted(a.positions->size[2])};
  Tensor mask = a.query;  // is not read
  if (a.mask != nullptr) {
    mask = is_taken(a, dtype) ? *a.mask : converted(*a.mask, Dtype::kFloat32);
    shape.mask = mask.dtype == Dtype::kBool      ? kHiding
                 : mask.dtype == Dtype::kFloat32 ? kSingle
                                                 : kSame;
    mask = broadcast(mask, std::array{size[0], size[1], size[2], a.key.size[2]});
  }
  arguments.add(mask).add(shape).add(strides_of(mask));
}

// By parts, in single precision.
void attend_by_parts(const Attention& a) {
  const auto& size = a.query.size;
  // The heads that share keys are so many more rows of one product.
  const int64_t batch = a.key.size[0] * a.key.size[1];
  const int64_t rows = a.query.size[1] / a.key.size[1] * size[2];
  const int64_t keys = a.key.size[2];
  const int64_t columns = a.value.size[3];
  const auto single = [&](const Tensor& tensor, int64_t down, int64_t across) {
    return matrices_of(converted(tensor, Dtype::kFloat32), batch, down, across);
  };
  const Tensor weights =
      metal::empty_contiguous(Dtype::kFloat32, std::array{size[0], size[1], size[2], keys});
  const Tensor scores = matrices_of(weights, batch, rows, keys);
  product(scores, single(a.query, rows, size[3]),
          with_axes_swapped(single(a.key, keys, size[3]), 1, 2),
          {nullptr, static_cast<float>(a.scale), 0, {}});
  Arguments arguments;
  arguments.add(weights);
  add_shape(arguments, a, Dtype::kFloat32);
  dispatch("attention", "weigh", arguments,
           Grid{{threads_for(batch * rows * static_cast<int64_t>(kSimdWidth)), 1, 1},
                {kSimdWidth, 1, 1}});
  const Tensor whole = metal::empty_contiguous(Dtype::kFloat32, a.output.sizes());
  product(matrices_of(whole, batch, rows, columns), scores, single(a.value, keys, columns),
          {nullptr, 1, 0, {}});
  metal::copy(whole, a.output);
}

// Whether the kernel of one query takes it.
bool is_for_one(const Attention& a) {
  return a.positions == nullptr && a.query.size[2] == 1 &&
         std::max(a.query.size[3], a.value.size[3]) <= kWidestOne;
}

void attend_whole(const Attention& a) {
  const auto& size = a.query.size;
  Arguments arguments;
  arguments.add(a.output).add(a.query).add(a.key).add(a.value);
  add_shape(arguments, a, a.query.dtype);
  for (const Tensor* tensor : {&a.query, &a.key, &a.value, &a.output}) {
    arguments.add(strides_of(*tensor));
  }
  const std::string type = metal_name(a.query.dtype);
  const uint64_t heads = threads_for(size[0] * size[1]);
  if (is_for_one(a)) {
    constexpr uint64_t kGroup = kSlices * kSimdWidth;
    return dispatch("attention", "attend_one_" + type, arguments,
                    Grid{{heads * kGroup, 1, 1}, {kGroup, 1, 1}});
  }
  const int64_t columns = std::max(size[3], a.value.size[3]) > kNarrow ? kBroad : kNarrow;
  const bool plain = a.positions == nullptr;
  const Tensor bias = plain ? a.query : dense(*a.biases[0]);  // copies live until it is encoded
  const Tensor place_bias = plain ? a.query : dense(*a.biases[1]);
  arguments.add(bias).add(place_bias);
  const Tensor positions =
      plain ? a.query
            : broadcast(*a.positions, std::array{size[0], size[1], a.positions->size[2], size[3]});
  arguments.add(positions).add(strides_of(positions));
  dispatch("attention",
           (plain ? "attend_" : "attend_relative_") + type + "_" + std::to_string(columns),
           arguments,
           Grid{{quotient(size[2], kQueries) * kThreads, quotient(a.value.size[3], columns), heads},
                {kThreads, 1, 1}});
}

double operations_of(const Attention& a) {
  return metal::operations_of(a.query.size[0] * a.query.size[1], a.query.size[2], a.key.size[2],
                              a.query.size[3] + a.value.size[3]);
}

void attend(const Attention& a) {
  if (a.output.empty()) return;
  if (a.key.empty()) return backend::fill_zero(a.output);
  const bool wide = a.query.size[3] > kBroad && !is_for_one(a);
  if (!wide && !is_for_library(operations_of(a))) return attend_whole(a);
  if (wide) return attend_by_parts(a);
  State::current().stream().for_library(
      [&] { a.positions == nullptr ? attend_by_parts(a) : attend_whole(a); });
  if (!is_taken(a, a.query.dtype)) return;
  Key key("attention");
  key.add(static_cast<int64_t>(a.query.dtype)).add(a.query.sizes()).add(a.value.sizes());
  key.add(int64_t{a.mask != nullptr}).add(int64_t{a.causal}).add(int64_t{a.positions != nullptr});
  State::current().sample(key, [&] { attend_whole(a); });
}

AtenTensorHandle attended(Attention a) {
  check(a);
  const std::array sizes{a.query.size[0], a.query.size[2], a.query.size[1], a.value.size[3]};
  const Tensor by_places = metal::empty_contiguous(a.query.dtype, sizes);
  a.output = with_axes_swapped(by_places, 1, 2);
  attend(a);
  return to_handle(by_places);
}

}  // namespace

MENAGERIE_SHIM aoti_torch_mps_attention(AtenTensorHandle query, AtenTensorHandle key,
                                        AtenTensorHandle value, AtenTensorHandle* mask,
                                        int32_t is_causal, double* scale, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& q = operand(query);
    const double factor = scale != nullptr ? *scale : 1 / std::sqrt(double(q.size[3]));
    *ret0 =
        attended({q, operand(key), operand(value), optional_operand(mask), is_causal != 0, factor});
  });
}

MENAGERIE_SHIM aoti_torch_mps_relative_attention(AtenTensorHandle query, AtenTensorHandle key,
                                                 AtenTensorHandle value, AtenTensorHandle* mask,
                                                 AtenTensorHandle positions, AtenTensorHandle bias,
                                                 AtenTensorHandle place_bias, double scale,
                                                 double hidden, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    *ret0 = attended({operand(query),
                      operand(key),
                      operand(value),
                      optional_operand(mask),
                      false,
                      scale,
                      &operand(positions),
                      {&operand(bias), &operand(place_bias)},
                      hidden});
  });
}
