// Scaled dot-product attention in blocks of queries and keys: the scores of a block stay in the
// cache, and a running maximum and sum make their softmax exact (Dao et al., FlashAttention, 2022).
// Keys and values of a head with many queries are packed once for all of its blocks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/bundle.h"
#include "common/context.h"
#include "common/copy.h"
#include "common/platform/threads.h"
#include "common/shim_support.h"
#include "cpu/work.h"
#include "kernels/kernels.h"

using namespace menagerie;

namespace {

constexpr int64_t kQueryBlock = 56;
constexpr int64_t kKeyBlock = 512;
constexpr int64_t kScoreRow = kKeyBlock + 16;  // not a power of two: rows share no set of the cache
constexpr int64_t kManyQueries = 32;           // that make packing worthwhile
constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct Problem {
  Tensor query, key, value;  // [batch, heads, length, width]; keys may have fewer heads
  const Tensor* mask;        // broadcast to [batch, heads, queries, keys]; null for none
  bool causal;
  float scale;
  bool coarse;     // whether the program's products are coarse
  Tensor output;   // shaped as query
  Tensor log_sum;  // [batch, heads, queries]
};

// Return the step from one row of a tensor to the next. The stride of a single row means nothing
// and may be too short for a product.
int64_t leading_dimension(const Tensor& tensor) {
  return tensor.size[2] == 1 ? std::max<int64_t>(tensor.size[3], 1) : tensor.stride[2];
}

// One block of queries of one head.
struct Block {
  const Problem& p;
  int64_t batch, head, first, rows;

  template <class T>
  T* row(const Tensor& tensor, int64_t index) const {
    return tensor.data<T>() + batch * tensor.stride[0] + head * tensor.stride[1] +
           index * tensor.stride[2];
  }
};

// The keys and values of every head, packed by blocks of keys; nothing where queries are few.
class PackedHeads {
 public:
  explicit PackedHeads(const Problem& p)
      : p_(p), blocks_((p.key.size[2] + kKeyBlock - 1) / kKeyBlock) {
    if (p.query.size[2] < kManyQueries) return;
    each_ = keys_of(kKeyBlock).size() + values_of(kKeyBlock).size();
    const int64_t heads = p.key.size[0] * p.key.size[1];
    const int64_t floats[] = {heads * blocks_ * each_};
    packed_ = empty_contiguous(Dtype::kFloat32, floats);
    threads::for_each(heads * blocks_, 1, [&](int64_t task) { pack(task); });
  }

  // Multiply dense rows of queries by the keys from `key` on; scores are kScoreRow apart.
  void score(const Block& block, int64_t key, int64_t keys, const float* queries,
             float* scores) const {
    const int64_t width = p_.query.size[3];
    const Block read = of_keys(block);
    if (each_ != 0) {
      const float* packed = place(read.batch * p_.key.size[1] + read.head, key / kKeyBlock);
      return keys_of(keys).multiply(queries, width, block.rows, packed, scores, kScoreRow);
    }
    kernels::small_product({block.rows, keys, width, queries, std::max<int64_t>(width, 1),
                            read.row<float>(p_.key, key), leading_dimension(p_.key), true, scores,
                            kScoreRow});
  }

  // Multiply weights, laid out as the scores, by the values from `key` on.
  void sum(const Block& block, int64_t key, int64_t keys, const float* weights, float* sums) const {
    const int64_t width = p_.value.size[3];
    const Block read = of_keys(block);
    if (each_ != 0) {
      const float* packed = place(read.batch * p_.key.size[1] + read.head, key / kKeyBlock);
      packed += keys_of(keys).size();
      return values_of(keys).multiply(weights, kScoreRow, block.rows, packed, sums, width);
    }
    kernels::small_product({block.rows, width, keys, weights, kScoreRow,
                            read.row<float>(p_.value, key), leading_dimension(p_.value), false,
                            sums, std::max<int64_t>(width, 1)});
  }

 private:
  kernels::PackedRight keys_of(int64_t keys) const { return {p_.key.size[3], keys, p_.coarse}; }
  kernels::PackedRight values_of(int64_t keys) const { return {keys, p_.value.size[3], p_.coarse}; }
  float* place(int64_t head, int64_t index) const {
    return packed_.data<float>() + (head * blocks_ + index) * each_;
  }

  // Return the head of keys and values for the block's queries: several of theirs may share one.
  Block of_keys(const Block& block) const {
    return {p_, block.batch, block.head * p_.key.size[1] / p_.query.size[1], 0, 0};
  }

  void pack(int64_t task) const {
    const int64_t head = task / blocks_, first = task % blocks_ * kKeyBlock;
    const int64_t keys = std::min(kKeyBlock, p_.key.size[2] - first);
    const Block block{p_, head / p_.key.size[1], head % p_.key.size[1], 0, 0};
    float* to = place(head, task % blocks_);
    keys_of(keys).pack(block.row<float>(p_.key, first), 1, leading_dimension(p_.key), to);
    to += keys_of(keys).size();
    values_of(keys).pack(block.row<float>(p_.value, first), leading_dimension(p_.value), 1, to);
  }

  const Problem& p_;
  int64_t blocks_;
  int64_t each_ = 0;  // floats of a block's keys and values
  Tensor packed_;
};

// The memory that a thread needs for a block.
struct Workspace {
  explicit Workspace(int64_t width)
      : queries(kQueryBlock * width),
        scores(kQueryBlock * kScoreRow),
        fresh(kQueryBlock * width),
        sums(kQueryBlock * width),
        maximum(kQueryBlock),
        total(kQueryBlock),
        rescale(kQueryBlock) {}
  std::vector<float> queries, scores, fresh, sums, maximum, total, rescale;
};

// Call take(key, its position in a row of a mask) for each key.
template <class Take>
void each_key(int64_t keys, int64_t step, const Take& take) {
  if (step == 1) {  // a loop that is vectorised
    for (int64_t j = 0; j < keys; ++j) take(j, j);
  } else {
    for (int64_t j = 0; j < keys; ++j) take(j, j * step);
  }
}

void add_mask(const Block& block, int64_t key, int64_t keys, float* scores) {
  const Tensor& mask = *block.p.mask;
  const int64_t base = block.batch * mask.stride[0] + block.head * mask.stride[1];
  const int64_t key_stride = mask.stride[3];
  for (int64_t i = 0; i < block.rows; ++i) {
    const int64_t start = base + (block.first + i) * mask.stride[2] + key * key_stride;
    float* row = scores + i * kScoreRow;
    if (mask.dtype == Dtype::kBool) {
      const bool* keep = mask.data<bool>() + start;
      each_key(keys, key_stride,
               [=](int64_t j, int64_t at) { row[j] = keep[at] ? row[j] : kNothing; });
    } else {
      const float* add = mask.data<float>() + start;
      each_key(keys, key_stride, [=](int64_t j, int64_t at) { row[j] += add[at]; });
    }
  }
}

void hide_future(const Block& block, int64_t key, int64_t keys, float* scores) {
  for (int64_t i = 0; i < block.rows; ++i) {
    const int64_t visible = std::clamp<int64_t>(block.first + i + 1 - key, 0, keys);
    std::fill(scores + i * kScoreRow + visible, scores + i * kScoreRow + keys, kNothing);
  }
}

// Turn a row of scores into weights against the new maximum; return the factor by which earlier
// sums are to be multiplied.
float soften_row(float* scores, int64_t keys, float& running, float& total) {
  const float highest = std::max(running, kernels::maximum(scores, keys));
  if (highest == kNothing) {
    for (float* score = scores; score < scores + keys; ++score) {
      if (!std::isnan(*score)) *score = 0;  // hidden
      total += *score;
    }
    return 1;
  }
  const float block_total = kernels::exponentials(scores, keys, highest);
  const float rescale = std::exp(running - highest);
  total = total * rescale + block_total;
  running = highest;
  return rescale;
}

// Write the block's queries times the scale, dense.
void scale_queries(const Block& block, float* to) {
  const int64_t width = block.p.query.size[3];
  for (int64_t i = 0; i < block.rows; ++i) {
    const float* from = block.row<float>(block.p.query, block.first + i);
    for (int64_t d = 0; d < width; ++d) to[i * width + d] = from[d] * block.p.scale;
  }
}

void attend(const Block& block, const PackedHeads& heads, Workspace& work) {
  const Problem& p = block.p;
  const int64_t width = p.value.size[3];
  const int64_t all_keys = p.key.size[2];
  const int64_t keys_seen = p.causal ? std::min(all_keys, block.first + block.rows) : all_keys;
  std::fill(work.sums.begin(), work.sums.end(), 0.0F);
  std::fill(work.maximum.begin(), work.maximum.end(), kNothing);
  std::fill(work.total.begin(), work.total.end(), 0.0F);
  scale_queries(block, work.queries.data());
  for (int64_t key = 0; key < keys_seen; key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, all_keys - key);
    float* scores = work.scores.data();
    heads.score(block, key, keys, work.queries.data(), scores);
    if (p.mask != nullptr) add_mask(block, key, keys, scores);
    if (p.causal) hide_future(block, key, keys, scores);
    for (int64_t i = 0; i < block.rows; ++i) {
      work.rescale[i] = soften_row(scores + i * kScoreRow, keys, work.maximum[i], work.total[i]);
    }
    heads.sum(block, key, keys, scores, work.fresh.data());
    for (int64_t i = 0; i < block.rows; ++i) {
      for (int64_t d = i * width; d < (i + 1) * width; ++d) {
        work.sums[d] = work.sums[d] * work.rescale[i] + work.fresh[d];
      }
    }
  }
  for (int64_t i = 0; i < block.rows; ++i) {
    // A query that sees no key attends to nothing.
    const float inverse = work.total[i] == 0 ? 0 : 1 / work.total[i];
    float* out = block.row<float>(p.output, block.first + i);
    for (int64_t d = 0; d < width; ++d) {
      out[d * p.output.stride[3]] = work.sums[i * width + d] * inverse;
    }
    *block.row<float>(p.log_sum, block.first + i) = work.maximum[i] + std::log(work.total[i]);
  }
}

void attention(const Problem& p) {
  const int64_t batches = p.query.size[0];
  const int64_t heads = p.query.size[1];
  const int64_t queries = p.query.size[2];
  const int64_t blocks = (queries + kQueryBlock - 1) / kQueryBlock;
  const int64_t tasks = batches * heads * blocks;
  const PackedHeads packed(p);
  threads::share_out(static_cast<size_t>(tasks), 1, [&](threads::Tasks& left) {
    Workspace work(p.value.size[3]);
    for (size_t next = 0, end = 0; left.take(next, end);) {
      const auto task = static_cast<int64_t>(next);
      const int64_t first = task % blocks * kQueryBlock;
      attend({p, task / blocks / heads, task / blocks % heads, first,
              std::min(kQueryBlock, queries - first)},
             packed, work);
    }
  });
}

// Return whether a product takes the matrices of the last two axes as they are: their rows are
// dense and do not overlap.
bool has_dense_rows(const Tensor& tensor) {
  return (tensor.stride[3] == 1 || tensor.size[3] == 1) &&
         (tensor.size[2] == 1 || tensor.stride[2] >= tensor.size[3]);
}

// Return the tensor in single precision with dense rows, from which blocks are computed.
Tensor prepared(const Tensor& tensor) {
  return tensor.dtype == Dtype::kFloat32 && has_dense_rows(tensor) ? tensor : widened(tensor);
}

void check(const Tensor& q, const Tensor& k, const Tensor& v) {
  require(q.dimensions == 4 && k.dimensions == 4 && v.dimensions == 4 && k.size[0] == q.size[0] &&
              (k.size[1] == q.size[1] || (k.size[1] > 0 && q.size[1] % k.size[1] == 0)) &&
              k.size[3] == q.size[3] && v.size[0] == k.size[0] && v.size[1] == k.size[1] &&
              v.size[2] == k.size[2] && v.size[3] == q.size[3],
          "shapes do not fit: query ", q, ", key ", k, ", value ", v);
  require(is_floating(q.dtype) && q.dtype == k.dtype && q.dtype == v.dtype,
          "query, key and value differ in dtype, or are not floating: ", q);
  require(q.dtype != Dtype::kFloat64, "attention is computed in single precision, not for ", q);
}

// Return a mask for each query and key, in a dtype that the blocks read.
Tensor prepared_mask(const Tensor& mask, const Tensor& q, const Tensor& k) {
  const bool read = mask.dtype == Dtype::kBool || mask.dtype == Dtype::kFloat32;
  const int64_t wanted[] = {q.size[0], q.size[1], q.size[2], k.size[2]};
  return broadcast(read ? mask : widened(mask), wanted);
}

}  // namespace

MENAGERIE_SHIM aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(
    AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value, double dropout_p,
    int32_t is_causal, AtenTensorHandle* attn_mask, double* scale, AtenTensorHandle* ret0,
    AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const Tensor& q = operand(query);
    const Tensor* mask = optional_operand(attn_mask);
    require(dropout_p == 0, "dropout ", dropout_p, " is for training");
    check(q, operand(key), operand(value));
    const Tensor output = empty_like(q);
    const int64_t log_sizes[] = {q.size[0], q.size[1], q.size[2]};
    const int64_t log_strides[] = {q.size[2] * q.size[1], 1, q.size[1]};
    const Tensor log_sum = empty_strided(Dtype::kFloat32, log_sizes, log_strides);
    const Tensor four = mask == nullptr ? Tensor() : prepared_mask(*mask, q, operand(key));
    const bool direct = output.dtype == Dtype::kFloat32;
    const Tensor computed = direct ? output : empty_contiguous(Dtype::kFloat32, q.sizes());
    if (!output.empty()) {
      const Work work = work_of_attention(q, operand(key), output);
      const Bundle* bundle = Context::current().bundle();
      const double chosen = scale != nullptr ? *scale : 1 / std::sqrt(double(q.size[3]));
      attention({prepared(q), prepared(operand(key)), prepared(operand(value)),
                 mask == nullptr ? nullptr : &four, is_causal != 0, static_cast<float>(chosen),
                 bundle != nullptr && bundle->is_coarse(), computed, log_sum});
      if (!direct) assign(computed, output);
    }
    *ret0 = to_handle(output);
    *ret1 = to_handle(log_sum);
  });
}
