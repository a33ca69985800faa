// Scaled dot-product attention on the device, by one kernel that keeps no scores. Of wide heads,
// and where the device computes large products elsewhere: a product, a softmax with a mask, a
// product. Half precision is computed in single and rounded once at the end.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "common/copy.h"
#include "common/shim_support.h"
#include "metal/dispatch.h"
#include "metal/operands.h"
#include "metal/products.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

// As softmax.metal has it.
struct Scores {
  int64_t heads, queries, keys;
  int32_t causal, mask;
};

// As attention.metal has them.
struct AttentionShape {
  uint32_t heads, sharing, queries, keys, width, columns;
  float scale;
  int32_t causal, mask;
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
  Tensor output;  // [B, H, L, V], its columns side by side
};

void check(const Tensor& q, const Tensor& k, const Tensor& v) {
  require(q.dimensions == 4 && k.dimensions == 4 && v.dimensions == 4 && k.size[0] == q.size[0] &&
              v.size[0] == q.size[0] && k.size[1] == v.size[1] && k.size[3] == q.size[3] &&
              k.size[2] == v.size[2] && k.size[1] > 0 && q.size[1] % k.size[1] == 0,
          "shapes do not fit: query ", q, ", key ", k, ", value ", v);
  require(is_floating(q.dtype) && q.dtype != Dtype::kFloat64 && q.dtype == k.dtype &&
              q.dtype == v.dtype,
          "query, key and value differ in dtype, or are not floating: ", q, ", ", k, ", ", v);
}

Tensor with_axes_swapped(const Tensor& tensor, int first, int second) {
  Tensor view = tensor;
  std::swap(view.size[first], view.size[second]);
  std::swap(view.stride[first], view.stride[second]);
  return view;
}

// softmax(scores + mask) in place.
void weigh(const Attention& a, const Tensor& scores) {
  Scores shape{a.query.size[1], a.query.size[2], a.key.size[2], a.causal ? 1 : 0, 0};
  Tensor mask = scores;  // is not read
  if (a.mask != nullptr) {
    shape.mask = a.mask->dtype == Dtype::kBool ? 2 : 1;
    mask = broadcast(converted(*a.mask, Dtype::kFloat32), scores.sizes());
  }
  const std::array<int64_t, 4> stride{mask.stride[0], mask.stride[1], mask.stride[2],
                                      mask.stride[3]};
  Arguments arguments;
  arguments.add(scores).add(mask).add(shape).add(stride);
  const auto rows = static_cast<uint64_t>(scores.elements() / scores.size[3]);
  dispatch("softmax", "weigh", arguments,
           Grid{{threads_for(static_cast<int64_t>(rows * kSimdWidth)), 1, 1}, {kSimdWidth, 1, 1}});
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
  weigh(a, weights);
  const Tensor whole = metal::empty_contiguous(Dtype::kFloat32, a.output.sizes());
  product(matrices_of(whole, batch, rows, columns), scores, single(a.value, keys, columns),
          {nullptr, 1, 0, {}});
  metal::copy(whole, a.output);
}

Strides strides_of(const Tensor& t) {
  int64_t last = 1;
  for (int axis = 0; axis < 4; ++axis) last += (t.size[axis] - 1) * t.stride[axis];
  counted(last);
  return {counted(t.stride[0]), counted(t.stride[1]), counted(t.stride[2]), counted(t.stride[3])};
}

// Whether the kernel reads the mask as it is.
bool is_taken(const Attention& a) {
  return a.mask->dtype == Dtype::kBool || a.mask->dtype == a.query.dtype;
}

// Whether the kernel of one query takes it.
bool is_for_one(const Attention& a) {
  return a.query.size[2] == 1 && std::max(a.query.size[3], a.value.size[3]) <= kWidestOne;
}

void attend_whole(const Attention& a) {
  const auto& size = a.query.size;
  AttentionShape shape{.heads = counted(size[1]),
                       .sharing = counted(size[1] / a.key.size[1]),
                       .queries = counted(size[2]),
                       .keys = counted(a.key.size[2]),
                       .width = counted(size[3]),
                       .columns = counted(a.value.size[3]),
                       .scale = static_cast<float>(a.scale),
                       .causal = a.causal ? 1 : 0,
                       .mask = kNone};
  Tensor mask = a.query;  // is not read
  if (a.mask != nullptr) {
    mask = is_taken(a) ? *a.mask : converted(*a.mask, Dtype::kFloat32);
    shape.mask = mask.dtype == Dtype::kBool      ? kHiding
                 : mask.dtype == Dtype::kFloat32 ? kSingle
                                                 : kSame;
    mask = broadcast(mask, std::array{size[0], size[1], size[2], a.key.size[2]});
  }
  Arguments arguments;
  arguments.add(a.output).add(a.query).add(a.key).add(a.value).add(mask).add(shape);
  arguments.add(strides_of(a.query)).add(strides_of(a.key)).add(strides_of(a.value));
  arguments.add(strides_of(mask)).add(strides_of(a.output));
  const std::string type = metal_name(a.query.dtype);
  const uint64_t heads = threads_for(size[0] * size[1]);
  if (is_for_one(a)) {
    constexpr uint64_t kGroup = kSlices * kSimdWidth;
    return dispatch("attention", "attend_one_" + type, arguments,
                    Grid{{heads * kGroup, 1, 1}, {kGroup, 1, 1}});
  }
  const int64_t columns = std::max(size[3], a.value.size[3]) > kNarrow ? kBroad : kNarrow;
  dispatch(
      "attention", "attend_" + type + "_" + std::to_string(columns), arguments,
      Grid{{quotient(shape.queries, kQueries) * kThreads, quotient(shape.columns, columns), heads},
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
  State::current().stream().for_library([&] { attend_by_parts(a); });
  if (a.mask != nullptr && !is_taken(a)) return;
  Key key("attention");
  key.add(static_cast<int64_t>(a.query.dtype)).add(a.query.sizes()).add(a.value.sizes());
  key.add(int64_t{a.mask != nullptr}).add(int64_t{a.causal});
  State::current().sample(key, [&] { attend_whole(a); });
}

}  // namespace

MENAGERIE_ABI AOTITorchError aoti_torch_mps_attention(AtenTensorHandle query, AtenTensorHandle key,
                                                      AtenTensorHandle value,
                                                      AtenTensorHandle* mask, int32_t is_causal,
                                                      double* scale, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& q = operand(query);
    const Tensor& k = operand(key);
    const Tensor& v = operand(value);
    const Tensor* hiding = optional_operand(mask);
    check(q, k, v);
    const std::array sizes{q.size[0], q.size[2], q.size[1], v.size[3]};
    const Tensor by_places = metal::empty_contiguous(q.dtype, sizes);
    const double factor = scale != nullptr ? *scale : 1 / std::sqrt(double(q.size[3]));
    attend({q, k, v, hiding, is_causal != 0, factor, with_axes_swapped(by_places, 1, 2)});
    *ret0 = to_handle(by_places);
  });
}
