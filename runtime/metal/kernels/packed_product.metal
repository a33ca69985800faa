// Products with a weight as it is kept: integers of eight or four bits, with a scale for each group
// of a row's numbers (format/FORMAT.md, rule 8), or with a scale and an offset, as torchao keeps
// them. Each number is widened when it is used; sums are of single precision.
#include "tiles.h"

// How a weight lies: bytes of a row's integers, scales of a row, and the power of two that a
// group's length is, or one beyond any row. `turned`: its rows are the columns of the matrix that
// it is.
struct Packing {
  uint row_bytes;
  uint groups;
  int shift;
  int turned;
};

// Numbers of eight bits; of four, two in a byte, each plus eight; of four that are not negative, to
// which an offset belongs.
struct Eight {
  static constant constexpr int kInWord = 4;
  static constant constexpr bool kHasOffset = false;
  static float at(device const uchar* row, uint column) {
    return static_cast<float>(static_cast<char>(row[column]));
  }
  static float in(uint word, int place) {
    return static_cast<float>(static_cast<char>(word >> (8 * place) & 0xff));
  }
};
template <int kLess>
struct Fours {
  static constant constexpr int kInWord = 8;
  static constant constexpr bool kHasOffset = kLess == 0;
  static float at(device const uchar* row, uint column) {
    return in(row[column / 2], column % 2);
  }
  static float in(uint word, int place) {
    return static_cast<float>(static_cast<int>(word >> (4 * place) & 15) - kLess);
  }
};
using Four = Fours<8>;
using Above = Fours<0>;

// The matrix that a weight is, whose rows are an operand's lines or its terms.
template <typename Form, typename S>
struct Packed {
  device const uchar* integers;
  device const S* scales;
  device const S* offsets;
  Packing of;
  bool along;
  uint lines;
  uint terms;
  uint first;  // line of a tile

  bool lies_along() const { return along; }
  float at(uint line, uint term) const {
    if (line >= lines || term >= terms) return 0.0f;
    const uint row = along ? line : term;
    const uint place = along ? term : line;
    const uint group = row * of.groups + (place >> of.shift);
    const float number = Form::at(integers + row * of.row_bytes, place);
    const float value = number * static_cast<float>(scales[group]);
    return Form::kHasOffset ? value + static_cast<float>(offsets[group]) : value;
  }
  template <int Tile, bool kLines>
  void begin(Held<Tile, kLines>, uint line, uint) {
    first = line;
  }
  template <int Tile, bool kLines>
  void hold(Held<Tile, kLines> held, uint term, uint index) const {
    hold_elements(held, *this, first, term, index);
  }
  template <int Tile>
  void prepare(uint) {}
};

// out = finish(alpha * x * weight + beta * addend), or with the weight first.
template <typename Form, typename T, typename S, int Tile, bool kFirst>
kernel void by_weight(device T* out [[buffer(0)]], device const T* x [[buffer(1)]],
                      device const uchar* integers [[buffer(2)]],
                      device const S* scales [[buffer(3)]], device const S* offsets [[buffer(4)]],
                      device const T* addend [[buffer(5)]], constant Extents& p [[buffer(6)]],
                      constant Strides& of_x [[buffer(7)]], constant Packing& of [[buffer(8)]],
                      constant Strides& of_addend [[buffer(9)]], FINISH(10, 11, 12),
                      uint3 group [[threadgroup_position_in_grid]],
                      uint index [[thread_index_in_threadgroup]]) {
  threadgroup float memory[MEMORY(Tile)];
  const uint batch = group.z;
  const Packed<Form, S> weight{integers, scales, offsets, of, (of.turned != 0) != kFirst,
                               kFirst ? p.m : p.n, p.k};
  const Matrix<T> dense{x + batch * of_x.batch, kFirst ? of_x.column : of_x.row,
                        kFirst ? of_x.row : of_x.column, kFirst ? p.n : p.m, p.k};
  const Result<T> to{out, addend, nullptr, true, of_addend, p, {&finish, other, &of_other, batch}};
  if (kFirst) {
    multiply_tile<Tile>(weight, dense, to, p.k, memory, group, index);
  } else {
    multiply_tile<Tile>(dense, weight, to, p.k, memory, group, index);
  }
}

// y[N] = finish(alpha * sum over k of x[k] * weight[n, k] + beta * addend[n]). In elements: along
// the sum, along the result, from one of a batch to the next.
struct Vectors {
  uint n;
  uint k;
  uint x_step;
  uint x_batch;
  uint addend_step;
  uint addend_batch;
  float alpha;
  float beta;
};

constant constexpr int kRows = 4;  // of a SIMD group: they share what it reads of the vector

// A group's numbers are whole words, and so are rows.
template <typename Form, typename T, typename S>
kernel void dot_rows(device T* out [[buffer(0)]], device const T* x [[buffer(1)]],
                     device const uint* integers [[buffer(2)]],
                     device const S* scales [[buffer(3)]], device const S* offsets [[buffer(4)]],
                     device const T* addend [[buffer(5)]], constant Vectors& p [[buffer(6)]],
                     constant Packing& of [[buffer(7)]], FINISH(8, 9, 10),
                     uint3 group [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  constexpr int kInWord = Form::kInWord;
  const uint first = group.x * kRows;
  const uint batch = group.y;
  const uint words = of.row_bytes / 4;
  device const T* vector = x + batch * p.x_batch;
  float sums[kRows] = {0, 0, 0, 0};
  for (uint word = lane; word < words; word += 32) {
    float terms[kInWord];
    float total = 0;
    for (int i = 0; i < kInWord; ++i) {
      terms[i] = static_cast<float>(vector[(word * kInWord + i) * p.x_step]);
      total += terms[i];
    }
    for (int r = 0; r < kRows; ++r) {
      if (first + r >= p.n) break;
      const uint bits = integers[(first + r) * words + word];
      float part = 0;
      for (int i = 0; i < kInWord; ++i) part += terms[i] * Form::in(bits, i);
      const uint at = (first + r) * of.groups + (word * kInWord >> of.shift);
      sums[r] += part * static_cast<float>(scales[at]);
      if (Form::kHasOffset) sums[r] += total * static_cast<float>(offsets[at]);
    }
  }
  const Finisher<T> finisher{&finish, other, &of_other, batch};
  for (int r = 0; r < kRows; ++r) {
    const float sum = simd_sum(sums[r]);
    const uint n = first + r;
    if (lane != 0 || n >= p.n) continue;
    float result = p.alpha * sum;
    // A NaN in an addend that does not count is not seen.
    if (p.beta != 0) {
      const uint at = batch * p.addend_batch + n * p.addend_step;
      result += p.beta * static_cast<float>(addend[at]);
    }
    out[batch * p.n + n] = static_cast<T>(finisher(result, 0, n));
  }
}

#define TILES(Way, First, Form, T, S, Tile)                          \
  template [[host_name(#Way "_" #Form "_" #T "_" #Tile)]] [[kernel]] \
  decltype(by_weight<Form, T, S, Tile, First>) by_weight<Form, T, S, Tile, First>;

#define ROWS(Form, T, S)                                      \
  template [[host_name("dot_rows_" #Form "_" #T)]] [[kernel]] \
  decltype(dot_rows<Form, T, S>) dot_rows<Form, T, S>;

#define INSTANTIATE(Form, T, S)    \
  TILES(by_weight, false, Form, T, S, 32) \
  TILES(by_weight, false, Form, T, S, 64) \
  ROWS(Form, T, S)

INSTANTIATE(Eight, float, bfloat)
INSTANTIATE(Four, float, bfloat)
INSTANTIATE(Above, float, float)
INSTANTIATE(Above, half, half)
INSTANTIATE(Above, bfloat, bfloat)
TILES(of_weight, true, Eight, float, bfloat, 32)
TILES(of_weight, true, Eight, float, bfloat, 64)
TILES(of_weight, true, Four, float, bfloat, 32)
TILES(of_weight, true, Four, float, bfloat, 64)
