// Matrix products, and convolutions as such, tile by tile (tiles.h).
#include "tiles.h"
#include "images.h"

// What a kernel's taps see of one image: a row for each tap of each channel, a column for each place
// of the result.
template <typename T>
struct Patches {
  device const T* data;
  Places of;
  Image from;
  Image to;
  Window w;

  bool lies_in_rows() const { return true; }
  float at(long row, long column) const {
    const int taps = w.height * w.width;
    const int channel = static_cast<int>(row) / taps;
    const int tap = static_cast<int>(row) % taps;
    const int y = static_cast<int>(column) / to.width * w.stride_y - w.padding_y +
                  tap / w.width * w.dilation_y;
    const int x = static_cast<int>(column) % to.width * w.stride_x - w.padding_x +
                  tap % w.width * w.dilation_x;
    const bool inside = channel < from.channels && static_cast<int>(column) < to.height * to.width &&
                        y >= 0 && y < from.height && x >= 0 && x < from.width;
    return inside ? static_cast<float>(data[channel * of.channel + y * of.row + x * of.column])
                  : 0.0f;
  }
};

template <typename T, int Tile>
kernel void multiply(device T* out [[buffer(0)]], device const T* a [[buffer(1)]],
                     device const T* b [[buffer(2)]], device const T* addend [[buffer(3)]],
                     constant Extents& p [[buffer(4)]], constant Strides& of_a [[buffer(5)]],
                     constant Strides& of_b [[buffer(6)]],
                     constant Strides& of_addend [[buffer(7)]],
                     device const T* other [[buffer(8)]], constant Finish& finish [[buffer(9)]],
                     constant Beside& of_other [[buffer(10)]],
                     uint3 group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float memory[Tile * Tile];
  const long batch = group.z;
  const Matrix<T> left{a + batch * of_a.batch, of_a, p.m, p.k};
  const Matrix<T> right{b + batch * of_b.batch, of_b, p.k, p.n};
  const Matrix<T> added{addend + batch * of_addend.batch, of_addend, p.m, p.n};
  const Finisher<T> finisher{&finish, other, &of_other, batch};
  multiply_tile<T, Tile>(out + batch * p.m * p.n, left, right, added, p, finisher, memory, group.xy,
                         index, simd);
}

// A matrix whose rows are multiplied by a factor each.
template <typename T>
struct ScaledRows {
  Matrix<T> matrix;
  device const T* factors;
  long step;

  bool lies_in_rows() const { return matrix.lies_in_rows(); }
  float at(long row, long column) const {
    return row < matrix.rows
               ? matrix.at(row, column) * static_cast<float>(factors[row * step])
               : 0.0f;
  }
};

// In elements: from one of a batch to the next, and from one row to the next.
struct FactorSteps {
  long batch;
  long row;
};

// The same of a `b` whose rows are multiplied before.
template <typename T, int Tile>
kernel void multiply_scaled(device T* out [[buffer(0)]], device const T* a [[buffer(1)]],
                            device const T* b [[buffer(2)]], device const T* addend [[buffer(3)]],
                            constant Extents& p [[buffer(4)]], constant Strides& of_a [[buffer(5)]],
                            constant Strides& of_b [[buffer(6)]],
                            constant Strides& of_addend [[buffer(7)]],
                            device const T* other [[buffer(8)]],
                            constant Finish& finish [[buffer(9)]],
                            constant Beside& of_other [[buffer(10)]],
                            device const T* factors [[buffer(11)]],
                            constant FactorSteps& steps [[buffer(12)]],
                            uint3 group [[threadgroup_position_in_grid]],
                            uint index [[thread_index_in_threadgroup]],
                            uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float memory[Tile * Tile];
  const long batch = group.z;
  const Matrix<T> left{a + batch * of_a.batch, of_a, p.m, p.k};
  const Matrix<T> right{b + batch * of_b.batch, of_b, p.k, p.n};
  const ScaledRows<T> scaled{right, factors + batch * steps.batch, steps.row};
  const Matrix<T> added{addend + batch * of_addend.batch, of_addend, p.m, p.n};
  const Finisher<T> finisher{&finish, other, &of_other, batch};
  multiply_tile<T, Tile>(out + batch * p.m * p.n, left, scaled, added, p, finisher, memory,
                         group.xy, index, simd);
}

// A convolution of [N, C, H, W] by [O, C, KH, KW] into a dense [N, O, H, W]; the batch is of images.
template <typename T, int Tile>
kernel void convolve(device T* out [[buffer(0)]], device const T* weight [[buffer(1)]],
                     device const T* input [[buffer(2)]], device const T* bias [[buffer(3)]],
                     constant Extents& p [[buffer(4)]], constant Image& from [[buffer(5)]],
                     constant Image& to [[buffer(6)]], constant Window& w [[buffer(7)]],
                     constant Places& of [[buffer(8)]],
                     device const T* other [[buffer(9)]], constant Finish& finish [[buffer(10)]],
                     constant Beside& of_other [[buffer(11)]],
                     uint3 group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float memory[Tile * Tile];
  const long image = group.z;
  const Matrix<T> taps{weight, {0, p.k, 1}, p.m, p.k};
  const Patches<T> patches{input + image * of.image, of, from, to, w};
  const Matrix<T> added{bias, {0, 1, 0}, p.m, p.n};
  const Finisher<T> finisher{&finish, other, &of_other, image};
  multiply_tile<T, Tile>(out + image * p.m * p.n, taps, patches, added, p, finisher, memory,
                         group.xy, index, simd);
}

#define INSTANTIATE(T, Tile)                                         \
  template [[host_name("multiply_" #T "_" #Tile)]] [[kernel]]        \
  decltype(multiply<T, Tile>) multiply<T, Tile>;                     \
  template [[host_name("multiply_scaled_" #T "_" #Tile)]] [[kernel]] \
  decltype(multiply_scaled<T, Tile>) multiply_scaled<T, Tile>;       \
  template [[host_name("convolve_" #T "_" #Tile)]] [[kernel]]        \
  decltype(convolve<T, Tile>) convolve<T, Tile>;

INSTANTIATE(float, 32)
INSTANTIATE(float, 64)
INSTANTIATE(half, 32)
INSTANTIATE(half, 64)
INSTANTIATE(bfloat, 32)
INSTANTIATE(bfloat, 64)
