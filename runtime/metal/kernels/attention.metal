// softmax(scale * query * key^T + mask) * value without the scores ever lying in memory: each block
// of keys corrects what the ones before it gave (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", arXiv 1805.02867). Scores, weights and sums are of single precision.
#include "tiles.h"

struct Shape {
  uint heads;    // of queries
  uint sharing;  // of them that share one head of keys
  uint queries;
  uint keys;
  uint width;    // of a query and of a key
  uint columns;  // of a value
  float scale;
  int causal;  // a query sees the keys up to its own position
  int mask;    // 0: none, 1: float is added, 2: T is added, 3: zero hides
  float hidden;    // what a hidden key has in place of its score by position
  uint positions;  // of relative ones: query i and key j are at number queries - 1 - i + j
};

// Strides in elements.
struct Heads {
  uint batch;
  uint head;
  uint row;
  uint column;
};

constant constexpr uint kSide = 32;  // queries of a group; keys, and columns, that it holds at a time

// What one head has of an operand: a line a row.
template <typename T>
Matrix<T> head_of(device const T* data, constant Heads& of, uint batch, uint head, uint rows,
                  uint columns) {
  return {data + (batch * of.batch + head * of.head), of.row, of.column, rows, columns};
}

// A score and the one by position as the mask leaves them: minus infinity where a query does not
// see a key.
template <typename T>
float masked(float score, float placed, device const uchar* mask, constant Heads& of,
             constant Shape& p, uint batch, uint head, uint query, uint key) {
  if (query >= p.queries || key >= p.keys || (p.causal && key > query)) return -INFINITY;
  if (p.mask == 0) return score + placed;
  const uint at = batch * of.batch + head * of.head + query * of.row + key * of.column;
  if (p.mask == 1) return score + reinterpret_cast<device const float*>(mask)[at];
  if (p.mask == 2) return score + static_cast<float>(reinterpret_cast<device const T*>(mask)[at]);
  return score + (mask[at] == 0 ? p.hidden : placed);  // eager adds minus infinity: NaN stays
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
uint seen_from(constant Shape& p, uint query) { return p.causal ? min(p.keys, query + 1) : p.keys; }

// The products of eight queries and the keys that a group holds, 32 terms of each.
void multiply_keys(thread simdgroup_float8x8 (&products)[4], thread const simdgroup_float8x8* query,
                   threadgroup const float* keys) {
#pragma unroll
  for (uint step = 0; step < 4; ++step) {
    for (uint j = 0; j < 4; ++j) {
      simdgroup_float8x8 k;
      simdgroup_load(k, keys + (8 * j * Held<32, true>::kLine + 8 * step), Held<32, true>::kLine,
                     ulong2(0, 0), true);
      simdgroup_multiply_accumulate(products[j], query[step], k, products[j]);
    }
  }
}

// Four matrices side by side.
void load_four(thread simdgroup_float8x8* four, threadgroup const float* from, uint row) {
#pragma unroll
  for (uint i = 0; i < 4; ++i) simdgroup_load(four[i], from + 8 * i, row);
}
void store_four(thread const simdgroup_float8x8* four, threadgroup float* to, uint row) {
#pragma unroll
  for (uint i = 0; i < 4; ++i) simdgroup_store(four[i], to + 8 * i, row);
}
void clear_four(thread simdgroup_float8x8* four) {
  for (uint i = 0; i < 4; ++i) four[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// The products of eight queries and the keys from `first` on.
template <uint kParts, typename T>
void meet(thread simdgroup_float8x8 (&products)[4], thread const simdgroup_float8x8* seeking,
          thread Matrix<T>& keys, Held<32, true> held, uint first, uint index) {
  clear_four(products);
  keys.begin(held, first, index);
#pragma unroll
  for (uint part = 0; part < kParts; ++part) {
    if (part * kSide >= keys.terms) continue;
    keys.hold(held, part * kSide, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_keys(products, seeking + 4 * part, held.all);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

#define OPERANDS                                                                                 \
  device T *out [[buffer(0)]], device const T *query [[buffer(1)]],                              \
      device const T *key [[buffer(2)]], device const T *value [[buffer(3)]],                    \
      device const uchar *mask [[buffer(4)]], constant Shape &p [[buffer(5)]],                   \
      constant Heads &of_mask [[buffer(6)]], constant Heads &of_query [[buffer(7)]],             \
      constant Heads &of_key [[buffer(8)]], constant Heads &of_value [[buffer(9)]],              \
      constant Heads &of_out [[buffer(10)]]

// A group computes kSide queries and `Columns` columns of the result, a SIMD group eight of its rows,
// and four lanes of it a row, so that a row's softmax and sums are theirs alone. Queries are of up to
// `Columns` numbers, and stay in registers.
//
// Relative: softmax(scale * ((query + bias) * key^T + shifted((query + place bias) * position^T))),
// where the shift takes each query and key to their position. A block of keys meets 63 positions.
// 32 of these the block before has met.
template <typename T, int Columns, bool kRelative>
kernel void attend(OPERANDS, device const T* bias [[buffer(11)]],
                   device const T* place_bias [[buffer(12)]],
                   device const T* position [[buffer(13)]],
                   constant Heads& of_position [[buffer(14)]],
                   uint3 group [[threadgroup_position_in_grid]],
                   uint index [[thread_index_in_threadgroup]],
                   uint simd [[simdgroup_index_in_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]]) {
  constexpr uint kRow = kSide + 4, kParts = Columns / kSide, kSought = kRelative ? 2 : 1;
  threadgroup float memory[3 * kSide * kRow];
  const Held<32, true> keys_held{memory};
  const Held<32, false> values_held{keys_held.all};
  const Held<32, true> held{keys_held.all + kSide * kRow};
  const uint mine = simd * 8 * kRow;                    // where this SIMD group's rows begin,
  const uint place = mine + lane / 4 * kRow + lane % 4;  // and this lane's elements, each fourth
  threadgroup float* rows = held.all + mine;
  threadgroup float* weights = rows + kSide * kRow;
  threadgroup float* own = held.all + place;
  const uint batch = group.z / p.heads, head = group.z - batch * p.heads;
  const uint top = group.x * kSide, start = group.y * Columns;
  const uint row = top + simd * 8 + lane / 4;
  Matrix<T> queries = head_of(query, of_query, batch, head, p.queries, p.width);
  Matrix<T> keys = head_of(key, of_key, batch, head / p.sharing, p.keys, p.width);
  Matrix<T> values[kParts];  // a line a column
  Matrix<T> positions = head_of(position, of_position, batch, head, p.positions, p.width);
  simdgroup_float8x8 seeking[kSought * 4 * kParts];
  float plain[8];  // of a row of queries, before it has a bias
  queries.begin(held, top, index);
#pragma unroll
  for (uint part = 0; part < kParts; ++part) {
    device const T* from = value + (batch * of_value.batch + head / p.sharing * of_value.head);
    values[part] = {from, of_value.column, of_value.row, p.columns, p.keys};
    values[part].begin(values_held, min(start + part * kSide, p.columns - 1), index);
    if (part * kSide >= p.width) continue;
    queries.hold(held, part * kSide, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint sought = 0; sought < kSought; ++sought) {
      device const T* added = (sought == 0 ? bias : place_bias) + head * p.width;
      for (uint j = 0; kRelative && j < 8; ++j) {
        const uint column = part * kSide + lane % 4 + 4 * j;
        if (sought == 0) plain[j] = own[4 * j];
        if (column < p.width) own[4 * j] = plain[j] + static_cast<float>(added[column]);
      }
      if (kRelative) simdgroup_barrier(mem_flags::mem_threadgroup);
      load_four(seeking + 4 * (sought * kParts + part), rows, kRow);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  Softmax softmax;
  float sums[Columns / 4];
  for (uint i = 0; i < Columns / 4; ++i) sums[i] = 0;
  const uint seen = seen_from(p, top + kSide - 1);
  // From the position of the last query and the first key on, which this row's lie behind.
  const uint last = min(top + kSide, p.queries) - 1, from = p.queries - 1 - last;
  const uint behind = last - min(row, last) + lane % 4;
  simdgroup_float8x8 products[4];
  simdgroup_float8x8 before[4];
  if (kRelative) {
    meet<kParts>(before, seeking + 4 * kParts, positions, keys_held, from, index);
  }
  for (uint first = 0; first < seen; first += kSide) {
    float placed[8] = {};
    if (kRelative) {
      meet<kParts>(products, seeking + 4 * kParts, positions, keys_held,
                   min(from + first + kSide, p.positions - 1), index);
      store_four(before, rows, kRow);
      store_four(products, weights, kRow);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      for (uint j = 0; j < 4; ++j) before[j] = products[j];
      for (uint j = 0; j < 8; ++j) {
        const uint at = behind + 4 * j;
        placed[j] = p.scale * (own - lane % 4)[at < kSide ? at : at + kSide * (kRow - 1)];
      }
    }
    meet<kParts>(products, seeking, keys, keys_held, first, index);
    store_four(products, weights, kRow);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    threadgroup float* scored = own + kSide * kRow;
    const bool open = p.mask == 0 && !p.causal && first + kSide <= p.keys;
    float scores[8];
    float highest = -INFINITY;
#pragma unroll
    for (uint j = 0; j < 8; ++j) {
      scores[j] = p.scale * scored[4 * j];
      if (!open) {
        scores[j] = masked<T>(scores[j], placed[j], mask, of_mask, p, batch, head, row,
                              first + lane % 4 + 4 * j);
      } else if (kRelative) {
        scores[j] += placed[j];
      }
      highest = max(highest, scores[j]);
    }
    highest = max(highest, simd_shuffle_xor(highest, 1));
    highest = max(highest, simd_shuffle_xor(highest, 2));
    const float corrected = softmax.raise(highest);
    float total = 0;
    for (uint j = 0; j < 8; ++j) {
      const float weight = softmax.weight(scores[j]);
      scored[4 * j] = weight;
      total += weight;
    }
    total += simd_shuffle_xor(total, 1);
    total += simd_shuffle_xor(total, 2);
    softmax.total = softmax.total * corrected + total;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_float8x8 weighing[4];
    load_four(weighing, weights, kRow);
#pragma unroll
    for (uint part = 0; part < kParts; ++part) {
      if (start + part * kSide >= p.columns) continue;
      values[part].hold(values_held, first, index);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      clear_four(products);
#pragma unroll
      for (uint step = 0; step < 4; ++step) {
        simdgroup_float8x8 v[4];
        load_four(v, values_held.all + 8 * step * kRow, kRow);
        for (uint j = 0; j < 4; ++j) {
          simdgroup_multiply_accumulate(products[j], weighing[step], v[j], products[j]);
        }
      }
      store_four(products, rows, kRow);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      // By threads, not by a product with a diagonal matrix: zero times NaN is NaN, for all rows.
      for (uint j = 0; j < 8; ++j) {
        sums[part * 8 + j] = fma(sums[part * 8 + j], corrected, own[4 * j]);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  if (row >= p.queries) return;
  device T* result = out + (batch * of_out.batch + head * of_out.head + row * of_out.row);
  const float scale = softmax.scale();
#pragma unroll
  for (uint i = 0; i < Columns / 4; ++i) {
    const uint column = start + lane % 4 + 4 * i;
    if (column < p.columns) result[column] = static_cast<T>(sums[i] * scale);
  }
}

constant constexpr uint kSlices = 8;
constant constexpr uint kLane = 8;  // columns of a lane, so of up to 256 in all

// The same of one query a head: the SIMD groups of a group share its keys, the lanes the columns.
template <typename T>
kernel void attend_one(OPERANDS,
                       uint group [[threadgroup_position_in_grid]],
                       uint slice [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float highests[kSlices];
  threadgroup float totals[kSlices];
  threadgroup float parts[kSlices][32 * kLane];
  const uint head = group % p.heads;
  const uint batch = group / p.heads;
  const Matrix<T> queries = head_of(query, of_query, batch, head, 1, p.width);
  const Matrix<T> keys = head_of(key, of_key, batch, head / p.sharing, p.keys, p.width);
  const Matrix<T> values = head_of(value, of_value, batch, head / p.sharing, p.keys, p.columns);
  float wanted[kLane];
  float sums[kLane];
  for (uint i = 0; i < kLane; ++i) {
    wanted[i] = queries.at(0, lane + 32 * i);
    sums[i] = 0;
  }
  Softmax softmax;
  const uint seen = seen_from(p, 0);
  for (uint at = slice; at < seen; at += kSlices) {
    float score = 0;
    for (uint i = 0; i < kLane; ++i) score += wanted[i] * keys.at(at, lane + 32 * i);
    score = masked<T>(p.scale * simd_sum(score), 0, mask, of_mask, p, batch, head, 0, at);
    const float corrected = softmax.raise(score);
    const float weight = softmax.weight(score);
    softmax.total = softmax.total * corrected + weight;
    for (uint i = 0; i < kLane; ++i) {
      sums[i] = sums[i] * corrected + weight * values.at(at, lane + 32 * i);
    }
  }
  for (uint i = 0; i < kLane; ++i) parts[slice][lane + 32 * i] = sums[i];
  if (lane == 0) {
    highests[slice] = softmax.highest;
    totals[slice] = softmax.total;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Softmax all;
  for (uint i = 0; i < kSlices; ++i) all.raise(highests[i]);
  for (uint i = 0; i < kSlices; ++i) all.total += totals[i] * all.weight(highests[i]);
  for (uint column = slice * 32 + lane; column < p.columns; column += kSlices * 32) {
    float sum = 0;
    for (uint i = 0; i < kSlices; ++i) sum += parts[i][column] * all.weight(highests[i]);
    out[batch * of_out.batch + head * of_out.head + column] = static_cast<T>(sum * all.scale());
  }
}

// What scores [batch, heads, queries, keys] weigh, in their place: one SIMD group a row.
kernel void weigh(device float* scores [[buffer(0)]], device const uchar* mask [[buffer(1)]],
                  constant Shape& p [[buffer(2)]], constant Heads& of_mask [[buffer(3)]],
                  uint group [[threadgroup_position_in_grid]],
                  uint lane [[thread_index_in_simdgroup]]) {
  const uint heads = group / p.queries, query = group - heads * p.queries;
  const uint batch = heads / p.heads, head = heads - batch * p.heads;
  device float* row = scores + static_cast<ulong>(group) * p.keys;
  Softmax softmax;
  for (uint key = lane; key < p.keys; key += 32) {
    row[key] = masked<float>(row[key], 0, mask, of_mask, p, batch, head, query, key);
    softmax.highest = max(softmax.highest, row[key]);
  }
  softmax.raise(simd_max(softmax.highest));
  float total = 0;
  for (uint key = lane; key < p.keys; key += 32) {
    row[key] = softmax.weight(row[key]);
    total += row[key];
  }
  softmax.total = simd_sum(total);
  for (uint key = lane; key < p.keys; key += 32) row[key] *= softmax.scale();
}

#define ATTEND(T, Columns)                                                  \
  template [[host_name("attend_" #T "_" #Columns)]] [[kernel]]              \
  decltype(attend<T, Columns, false>) attend<T, Columns, false>;            \
  template [[host_name("attend_relative_" #T "_" #Columns)]] [[kernel]]     \
  decltype(attend<T, Columns, true>) attend<T, Columns, true>;

#define INSTANTIATE(T)                                \
  ATTEND(T, 64)                                       \
  ATTEND(T, 128)                                      \
  template [[host_name("attend_one_" #T)]] [[kernel]] \
  decltype(attend_one<T>) attend_one<T>;

INSTANTIATE(float)
INSTANTIATE(half)
INSTANTIATE(bfloat)
