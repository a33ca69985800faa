// softmax(scale * query * key^T + mask) * value without the scores ever lying in memory: each block
// of keys corrects what the ones before it gave (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", arXiv 1805.02867). Scores, weights and sums are of single precision.
#include <metal_stdlib>
using namespace metal;

struct Shape {
  long heads;    // of queries
  long sharing;  // of them that share one head of keys
  long queries;
  long keys;
  long width;    // of a query and of a key
  long columns;  // of a value
  float scale;
  int causal;  // a query sees the keys up to its own position
  int mask;    // 0: none, 1: float is added, 2: T is added, 3: zero hides
};

// Strides in elements.
struct Strides {
  long batch;
  long head;
  long row;
  long column;
};

constant constexpr int kSide = 32;  // queries of a group; keys, and columns, that it holds at a time
constant constexpr int kThreads = 128;

// What one head has of an operand, zero beyond its edges.
template <typename T>
struct Head {
  device const T* data;
  Strides of;
  long rows;
  long columns;

  float at(long row, long column) const {
    return row < rows && column < columns
               ? static_cast<float>(data[row * of.row + column * of.column])
               : 0.0f;
  }
  // [kSide, kSide] from a place on. Neighbours among the threads read neighbours in memory.
  void hold(threadgroup float* tile, long top, long start, uint index) const {
    for (int i = index; i < kSide * kSide; i += kThreads) {
      const int row = of.column == 1 ? i / kSide : i % kSide;
      const int column = of.column == 1 ? i % kSide : i / kSide;
      tile[row * kSide + column] = at(top + row, start + column);
    }
  }
};

template <typename T>
Head<T> head_of(device const T* data, Strides of, long batch, long head, long rows, long columns) {
  return {data + batch * of.batch + head * of.head, of, rows, columns};
}

// A score as the mask leaves it: minus infinity where a query does not see a key.
template <typename T>
float masked(float score, device const uchar* mask, constant Strides& of, constant Shape& p,
             long batch, long head, long query, long key) {
  if (query >= p.queries || key >= p.keys || (p.causal && key > query)) return -INFINITY;
  if (p.mask == 0) return score;
  const long at = batch * of.batch + head * of.head + query * of.row + key * of.column;
  if (p.mask == 1) return score + reinterpret_cast<device const float*>(mask)[at];
  if (p.mask == 2) return score + static_cast<float>(reinterpret_cast<device const T*>(mask)[at]);
  return mask[at] == 0 ? score - INFINITY : score;  // eager adds minus infinity: NaN stays
}

// The weights so far of one query: exp(score - highest) each, and their sum. A NaN is no maximum,
// but makes the total NaN.
struct Softmax {
  float highest = -INFINITY;
  float total = 0;
  float zero = 0;  // what scores are taken relative to: a finite number until one is seen

  // Takes note of a higher maximum; what was summed so far must be multiplied by the result.
  float raise(float score) {
    const float before = highest;
    highest = max(highest, score);
    zero = highest == -INFINITY ? 0.0f : highest;
    return exp(before - zero);
  }
  float weight(float score) const { return exp(score - zero); }
  // A query that sees no key gets zero.
  float scale() const { return total == 0 ? 0.0f : 1 / total; }
};

// The last key, and one more, that queries up to here see.
long seen_from(constant Shape& p, long query) { return p.causal ? min(p.keys, query + 1) : p.keys; }

// A group computes kSide queries and `Columns` columns of the result, a SIMD group eight of its rows,
// and four lanes of it a row, so that a row's softmax and sums are theirs alone.
template <typename T, int Columns>
kernel void attend(device T* out [[buffer(0)]], device const T* query [[buffer(1)]],
                   device const T* key [[buffer(2)]], device const T* value [[buffer(3)]],
                   device const uchar* mask [[buffer(4)]], constant Shape& p [[buffer(5)]],
                   constant Strides& of_query [[buffer(6)]], constant Strides& of_key [[buffer(7)]],
                   constant Strides& of_value [[buffer(8)]],
                   constant Strides& of_mask [[buffer(9)]],
                   constant Strides& of_out [[buffer(10)]],
                   uint3 group [[threadgroup_position_in_grid]],
                   uint index [[thread_index_in_threadgroup]],
                   uint simd [[simdgroup_index_in_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float left[kSide * kSide];
  threadgroup float right[kSide * kSide];
  threadgroup float weights[kSide * kSide];
  const long head = group.z % p.heads;
  const long batch = group.z / p.heads;
  const long top = static_cast<long>(group.x) * kSide;
  const long start = static_cast<long>(group.y) * Columns;
  const Head<T> queries = head_of(query, of_query, batch, head, p.queries, p.width);
  const Head<T> keys = head_of(key, of_key, batch, head / p.sharing, p.keys, p.width);
  const Head<T> values = head_of(value, of_value, batch, head / p.sharing, p.keys, p.columns);
  const int mine = simd * 8 * kSide;  // where in a tile this SIMD group's rows begin
  const int place = mine + lane / 4 * kSide + lane % 4;  // and this lane's elements, each fourth
  const long row = top + simd * 8 + lane / 4;
  Softmax softmax;
  float sums[Columns / 4];
  for (int i = 0; i < Columns / 4; ++i) sums[i] = 0;
  const long seen = seen_from(p, top + kSide - 1);
  for (long first = 0; first < seen; first += kSide) {
    simdgroup_float8x8 products[4];
    for (int j = 0; j < 4; ++j) products[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (long depth = 0; depth < p.width; depth += kSide) {
      queries.hold(left, top, depth, index);
      keys.hold(right, first, depth, index);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int step = 0; step < kSide; step += 8) {
        simdgroup_float8x8 q;
        simdgroup_load(q, left + mine + step, kSide);
        for (int j = 0; j < 4; ++j) {
          simdgroup_float8x8 k;
          simdgroup_load(k, right + 8 * j * kSide + step, kSide, ulong2(0, 0), true);
          simdgroup_multiply_accumulate(products[j], q, k, products[j]);
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (int j = 0; j < 4; ++j) simdgroup_store(products[j], weights + mine + 8 * j, kSide);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    float scores[8];
    float highest = -INFINITY;
    for (int j = 0; j < 8; ++j) {
      scores[j] = masked<T>(p.scale * weights[place + 4 * j], mask, of_mask, p, batch, head, row,
                            first + lane % 4 + 4 * j);
      highest = max(highest, scores[j]);
    }
    highest = max(highest, simd_shuffle_xor(highest, 1));
    highest = max(highest, simd_shuffle_xor(highest, 2));
    const float corrected = softmax.raise(highest);
    float total = 0;
    for (int j = 0; j < 8; ++j) {
      const float weight = softmax.weight(scores[j]);
      weights[place + 4 * j] = weight;
      total += weight;
    }
    total += simd_shuffle_xor(total, 1);
    total += simd_shuffle_xor(total, 2);
    softmax.total = softmax.total * corrected + total;
    for (int i = 0; i < Columns / 4; ++i) sums[i] *= corrected;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int part = 0; part < Columns / kSide; ++part) {
      if (start + part * kSide >= p.columns) continue;
      values.hold(right, first, start + part * kSide, index);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int j = 0; j < 4; ++j) products[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      for (int step = 0; step < kSide; step += 8) {
        simdgroup_float8x8 w;
        simdgroup_load(w, weights + mine + step, kSide);
        for (int j = 0; j < 4; ++j) {
          simdgroup_float8x8 v;
          simdgroup_load(v, right + step * kSide + 8 * j, kSide);
          simdgroup_multiply_accumulate(products[j], w, v, products[j]);
        }
      }
      for (int j = 0; j < 4; ++j) simdgroup_store(products[j], left + mine + 8 * j, kSide);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      // By threads, not by a product with a diagonal matrix: zero times NaN is NaN, for all rows.
      for (int j = 0; j < 8; ++j) sums[part * 8 + j] += left[place + 4 * j];
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  if (row >= p.queries) return;
  device T* result = out + batch * of_out.batch + head * of_out.head + row * of_out.row;
  const float scale = softmax.scale();
  for (int i = 0; i < Columns / 4; ++i) {
    const long column = start + lane % 4 + 4 * i;
    if (column < p.columns) result[column] = static_cast<T>(sums[i] * scale);
  }
}

constant constexpr int kSlices = 8;
constant constexpr int kLane = 8;  // columns of a lane, so of up to 256 in all

// The same of one query a head: the SIMD groups of a group share its keys, the lanes the columns.
template <typename T>
kernel void attend_one(device T* out [[buffer(0)]], device const T* query [[buffer(1)]],
                       device const T* key [[buffer(2)]], device const T* value [[buffer(3)]],
                       device const uchar* mask [[buffer(4)]], constant Shape& p [[buffer(5)]],
                       constant Strides& of_query [[buffer(6)]],
                       constant Strides& of_key [[buffer(7)]],
                       constant Strides& of_value [[buffer(8)]],
                       constant Strides& of_mask [[buffer(9)]],
                       constant Strides& of_out [[buffer(10)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint slice [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float highests[kSlices];
  threadgroup float totals[kSlices];
  threadgroup float parts[kSlices][32 * kLane];
  const long head = group % p.heads;
  const long batch = group / p.heads;
  const Head<T> queries = head_of(query, of_query, batch, head, 1, p.width);
  const Head<T> keys = head_of(key, of_key, batch, head / p.sharing, p.keys, p.width);
  const Head<T> values = head_of(value, of_value, batch, head / p.sharing, p.keys, p.columns);
  float wanted[kLane];
  float sums[kLane];
  for (int i = 0; i < kLane; ++i) {
    wanted[i] = queries.at(0, lane + 32 * i);
    sums[i] = 0;
  }
  Softmax softmax;
  const long seen = seen_from(p, 0);
  for (long at = slice; at < seen; at += kSlices) {
    float score = 0;
    for (int i = 0; i < kLane; ++i) score += wanted[i] * keys.at(at, lane + 32 * i);
    score = masked<T>(p.scale * simd_sum(score), mask, of_mask, p, batch, head, 0, at);
    const float corrected = softmax.raise(score);
    const float weight = softmax.weight(score);
    softmax.total = softmax.total * corrected + weight;
    for (int i = 0; i < kLane; ++i) {
      sums[i] = sums[i] * corrected + weight * values.at(at, lane + 32 * i);
    }
  }
  for (int i = 0; i < kLane; ++i) parts[slice][lane + 32 * i] = sums[i];
  if (lane == 0) {
    highests[slice] = softmax.highest;
    totals[slice] = softmax.total;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Softmax all;
  for (int i = 0; i < kSlices; ++i) all.raise(highests[i]);
  for (int i = 0; i < kSlices; ++i) all.total += totals[i] * all.weight(highests[i]);
  for (long column = slice * 32 + lane; column < p.columns; column += kSlices * 32) {
    float sum = 0;
    for (int i = 0; i < kSlices; ++i) sum += parts[i][column] * all.weight(highests[i]);
    out[batch * of_out.batch + head * of_out.head + column] = static_cast<T>(sum * all.scale());
  }
}

#define INSTANTIATE(T, Columns)                                \
  template [[host_name("attend_" #T "_" #Columns)]] [[kernel]] \
  decltype(attend<T, Columns>) attend<T, Columns>;

#define INSTANTIATE_ONE(T)                            \
  template [[host_name("attend_one_" #T)]] [[kernel]] \
  decltype(attend_one<T>) attend_one<T>;

INSTANTIATE(float, 64)
INSTANTIATE(float, 128)
INSTANTIATE(half, 64)
INSTANTIATE(half, 128)
INSTANTIATE(bfloat, 64)
INSTANTIATE(bfloat, 128)
INSTANTIATE_ONE(float)
INSTANTIATE_ONE(half)
INSTANTIATE_ONE(bfloat)
