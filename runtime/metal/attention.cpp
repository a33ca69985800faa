// Scaled dot-product attention on the device, by one kernel that keeps no scores. Where the weights
// are wanted too, or the device computes large products elsewhere: a product, a softmax with a
// mask, a product. Half precision is computed in single and rounded once at the end.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "common/copy.h"
#include "common/shim_support.h"
#include "metal/dispatch.h"
#include "metal/operands.h"
#include "metal/own_products.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

// As softmax.metal has it.
struct Scores {
  int64_t heads, queries, keys;
  int32_t causal, mask;
};

// As attention.metal has them.
struct Shape {
  int64_t heads, sharing, queries, keys, width, columns;
  float scale;
  int32_t causal, mask;
};
struct Strides {
  int64_t batch, head, row, column;
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
  const Tensor* mask;   // broadcasts to [B, H, L, S]
  bool causal;
  double scale;
};

void check(const Attention& a, bool grouped) {
  const auto& [q, k, v] = std::tie(a.query, a.key, a.value);
  require(q.dimensions == 4 && k.dimensions == 4 && v.dimensions == 4 && k.size[0] == q.size[0] &&
              v.size[0] == q.size[0] && k.size[1] == v.size[1] && k.size[3] == q.size[3] &&
              k.size[2] == v.size[2] &&
              (grouped ? k.size[1] > 0 && q.size[1] % k.size[1] == 0 : k.size[1] == q.size[1]),
          "shapes do not fit: query ", q, ", key ", k, ", value ", v);
  require(is_floating(q.dtype) && q.dtype != Dtype::kFloat64 && q.dtype == k.dtype &&
              q.dtype == v.dtype,
          "query, key and value differ in dtype, or are not floating: ", q, ", ", k, ", ", v);
  if (a.mask == nullptr) return;
  const int64_t wanted[] = {q.size[0], q.size[1], q.size[2], k.size[2]};
  bool fits = a.mask->dimensions <= 4;
  for (int32_t axis = 0; fits && axis < a.mask->dimensions; ++axis) {
    const int64_t size = a.mask->size[a.mask->dimensions - 1 - axis];
    fits = size == 1 || size == wanted[3 - axis];
  }
  require(fits, "the mask ", *a.mask, " does not fit query ", q, " and key ", k);
}

// The heads that share keys are so many more rows of one product.
MatmulDescriptor product_of(const Attention& a, int64_t n, int64_t k) {
  const int64_t batch = a.key.size[0] * a.key.size[1];
  const int64_t rows = a.query.size[1] / a.key.size[1] * a.query.size[2];
  return {.dtype = Dtype::kFloat32,
          .batch = batch,
          .m = rows,
          .n = n,
          .k = k,
          .a_transposed = false,
          .b_transposed = false,
          .a_batch = batch,
          .b_batch = batch,
          .alpha = 1,
          .beta = 1,
          .addend = std::nullopt};
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

// By parts, in single precision: the result, and the weights.
std::pair<Tensor, Tensor> attend_by_parts(const Attention& a) {
  const auto& size = a.query.size;
  const int64_t score_sizes[] = {size[0], size[1], size[2], a.key.size[2]};
  const int64_t output_sizes[] = {size[0], size[1], size[2], a.value.size[3]};
  const Tensor output = metal::empty_contiguous(Dtype::kFloat32, output_sizes);
  const Tensor weights = metal::empty_contiguous(Dtype::kFloat32, score_sizes);
  if (weights.empty() || a.query.empty()) {
    backend::fill_zero(output);
    backend::fill_zero(weights);
    return {output, weights};
  }
  const Tensor query = converted(a.query, Dtype::kFloat32);
  const Tensor key = converted(a.key, Dtype::kFloat32);
  MatmulDescriptor scoring = product_of(a, a.key.size[2], size[3]);
  scoring.b_transposed = true;
  scoring.alpha = static_cast<float>(a.scale);
  product(scoring, {region_of(query), region_of(key), {}, region_of(weights)}, {});
  weigh(a, weights);
  if (output.empty()) return {output, weights};
  const Tensor value = converted(a.value, Dtype::kFloat32);
  product(product_of(a, a.value.size[3], a.key.size[2]),
          {region_of(weights), region_of(value), {}, region_of(output)}, {});
  return {output, weights};
}

Strides strides_of(const Tensor& t) { return {t.stride[0], t.stride[1], t.stride[2], t.stride[3]}; }

void dispatch_whole(const Attention& a, const Tensor& output) {
  const auto& size = a.query.size;
  Shape shape{.heads = size[1],
              .sharing = size[1] / a.key.size[1],
              .queries = size[2],
              .keys = a.key.size[2],
              .width = size[3],
              .columns = a.value.size[3],
              .scale = static_cast<float>(a.scale),
              .causal = a.causal ? 1 : 0,
              .mask = kNone};
  Tensor mask = a.query;  // is not read
  if (a.mask != nullptr) {
    const bool taken = a.mask->dtype == Dtype::kBool || a.mask->dtype == a.query.dtype;
    mask = taken ? *a.mask : converted(*a.mask, Dtype::kFloat32);
    shape.mask = mask.dtype == Dtype::kBool      ? kHiding
                 : mask.dtype == Dtype::kFloat32 ? kSingle
                                                 : kSame;
    mask = broadcast(mask, std::array{size[0], size[1], size[2], shape.keys});
  }
  Arguments arguments;
  arguments.add(output).add(a.query).add(a.key).add(a.value).add(mask).add(shape);
  arguments.add(strides_of(a.query)).add(strides_of(a.key)).add(strides_of(a.value));
  arguments.add(strides_of(mask));
  const std::string type = metal_name(a.query.dtype);
  const uint64_t heads = threads_for(size[0] * size[1]);
  if (shape.queries == 1 && std::max(shape.width, shape.columns) <= kWidestOne) {
    constexpr uint64_t kGroup = kSlices * kSimdWidth;
    return dispatch("attention", "attend_one_" + type, arguments,
                    Grid{{heads * kGroup, 1, 1}, {kGroup, 1, 1}});
  }
  const int64_t columns = shape.columns > kNarrow ? kBroad : kNarrow;
  dispatch(
      "attention", "attend_" + type + "_" + std::to_string(columns), arguments,
      Grid{{quotient(shape.queries, kQueries) * kThreads, quotient(shape.columns, columns), heads},
           {kThreads, 1, 1}});
}

// The result alone.
Tensor attend_whole(const Attention& a) {
  const int64_t sizes[] = {a.query.size[0], a.query.size[1], a.query.size[2], a.value.size[3]};
  const Tensor output = metal::empty_contiguous(a.query.dtype, sizes);
  if (output.empty()) return output;
  if (a.key.empty()) {
    backend::fill_zero(output);
  } else {
    dispatch_whole(a, output);
  }
  return output;
}

double operations_of(const Attention& a) {
  const auto rows = static_cast<double>(a.query.size[0] * a.query.size[1] * a.query.size[2]);
  return 2.0 * rows * static_cast<double>(a.key.size[2] * (a.query.size[3] + a.value.size[3]));
}

struct Given {
  AtenTensorHandle query, key, value;
  AtenTensorHandle* mask;
  double dropout;
  bool causal;
  AtenTensorHandle* dropout_mask;
  const double* scale;
};

// `weights` may be null: they are not wanted.
void run(const Given& given, bool grouped, AtenTensorHandle* output, AtenTensorHandle* weights) {
  const Tensor& query = operand(given.query);
  require(given.dropout == 0 && optional_operand(given.dropout_mask) == nullptr, "dropout ",
          given.dropout, " is for training");
  const Attention attention{
      query, operand(given.key), operand(given.value), optional_operand(given.mask), given.causal,
      0};
  check(attention, grouped);
  Attention scaled = attention;
  scaled.scale = given.scale != nullptr ? *given.scale : 1 / std::sqrt(double(query.size[3]));
  if (weights == nullptr && is_own_attention(operations_of(scaled))) {
    *output = to_handle(attend_whole(scaled));
    return;
  }
  const auto [result, weighed] = attend_by_parts(scaled);
  *output = to_handle(converted(result, query.dtype));
  if (weights != nullptr) *weights = to_handle(converted(weighed, query.dtype));
}

}  // namespace

AOTITorchError aoti_torch_mps__scaled_dot_product_attention_math_for_mps(
    AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value,
    AtenTensorHandle* attn_mask, double dropout_p, int32_t is_causal,
    AtenTensorHandle* dropout_mask, double* scale, AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    run({query, key, value, attn_mask, dropout_p, is_causal != 0, dropout_mask, scale},
        /*grouped=*/false, ret0, ret1);
  });
}

AOTITorchError aoti_torch_mps__scaled_dot_product_attention_math_for_mps_v2(
    AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value,
    AtenTensorHandle* attn_mask, double dropout_p, int32_t is_causal,
    AtenTensorHandle* dropout_mask, double* scale, int32_t enable_gqa, AtenTensorHandle* ret0,
    AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    run({query, key, value, attn_mask, dropout_p, is_causal != 0, dropout_mask, scale},
        enable_gqa != 0, ret0, ret1);
  });
}
