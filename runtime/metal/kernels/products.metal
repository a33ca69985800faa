// Products of matrices and convolutions where MPSGraph computes wrong numbers or none on the GPU.
// Sums are of single precision and rounded once.
#include <metal_stdlib>
using namespace metal;

struct Extents {
  long m;
  long n;
  long k;
  float alpha;
  float beta;
};

// Strides in elements: of the batch, of a row, of a column.
struct Strides {
  long batch;
  long row;
  long column;
};

constant constexpr int kTile = 16;

// out[B, M, N] = alpha * a[B, M, K] * b[B, K, N] + beta * addend, a tile of the result a group.
template <typename T>
kernel void multiply(device T* out [[buffer(0)]], device const T* a [[buffer(1)]],
                     device const T* b [[buffer(2)]], device const T* addend [[buffer(3)]],
                     constant Extents& p [[buffer(4)]], constant Strides& of_a [[buffer(5)]],
                     constant Strides& of_b [[buffer(6)]],
                     constant Strides& of_addend [[buffer(7)]],
                     uint3 group [[threadgroup_position_in_grid]],
                     uint3 place [[thread_position_in_threadgroup]]) {
  threadgroup float left[kTile][kTile];
  threadgroup float right[kTile][kTile];
  const long batch = group.z;
  const long row = group.y * kTile + place.y;
  const long column = group.x * kTile + place.x;
  // Summed by tile, by block of tiles and in all: one running sum of 32,000 terms rounds too often.
  float sum = 0;
  float block = 0;
  for (long begin = 0; begin < p.k; begin += kTile) {
    const long across = begin + place.x;
    const long down = begin + place.y;
    left[place.y][place.x] =
        row < p.m && across < p.k
            ? static_cast<float>(a[batch * of_a.batch + row * of_a.row + across * of_a.column])
            : 0;
    right[place.y][place.x] =
        down < p.k && column < p.n
            ? static_cast<float>(b[batch * of_b.batch + down * of_b.row + column * of_b.column])
            : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const int terms = static_cast<int>(min(static_cast<long>(kTile), p.k - begin));
    float part = 0;
    for (int i = 0; i < terms; ++i) part += left[place.y][i] * right[i][place.x];
    block += part;
    if (begin / kTile % kTile == kTile - 1) {
      sum += block;
      block = 0;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (row >= p.m || column >= p.n) return;
  float result = p.alpha * (sum + block);
  // A NaN in an addend that does not count is not seen.
  if (p.beta != 0) {
    result += p.beta * static_cast<float>(addend[batch * of_addend.batch + row * of_addend.row +
                                                 column * of_addend.column]);
  }
  out[(batch * p.m + row) * p.n + column] = static_cast<T>(result);
}

struct Image {
  int channels;
  int height;
  int width;
};

struct Window {
  int height;
  int width;
  int stride_y;
  int stride_x;
  int padding_y;
  int padding_x;
  int dilation_y;
  int dilation_x;
  int groups;
  int transposed;
  int has_bias;
};

// Strides of the input in elements: of an image, a channel, a row, a place.
struct Places {
  long image;
  long channel;
  long row;
  long column;
};

// Where in the input a tap of the kernel lies, or -1: nowhere.
int source_of(int place, int tap, int stride, int padding, int dilation, int extent,
              int transposed) {
  int at = transposed ? place + padding - tap * dilation : place * stride - padding + tap * dilation;
  if (transposed) {
    if (at < 0 || at % stride != 0) return -1;
    at /= stride;
  }
  return at >= 0 && at < extent ? at : -1;
}

// One element of the result, [N, O, H, W] and dense, a thread. The weight is [O, C / groups, KH, KW],
// or [C, O / groups, KH, KW] if the convolution is transposed.
template <typename T>
kernel void convolve(device T* out [[buffer(0)]], device const T* input [[buffer(1)]],
                     device const T* weight [[buffer(2)]], device const T* bias [[buffer(3)]],
                     constant Image& from [[buffer(4)]], constant Image& to [[buffer(5)]],
                     constant Window& w [[buffer(6)]], constant Places& of [[buffer(7)]],
                     uint thread_index [[thread_position_in_grid]]) {
  const int x = thread_index % to.width;
  const int y = thread_index / to.width % to.height;
  const int channel = thread_index / to.width / to.height % to.channels;
  const long image = thread_index / to.width / to.height / to.channels;
  const int in_group = from.channels / w.groups;
  const int out_group = to.channels / w.groups;
  const int first = channel / out_group * in_group;
  float sum = 0;
  for (int c = 0; c < in_group; ++c) {
    const long taps = w.transposed
                          ? static_cast<long>(first + c) * out_group + channel % out_group
                          : static_cast<long>(channel) * in_group + c;
    device const T* row = weight + taps * w.height * w.width;
    device const T* plane = input + image * of.image + (first + c) * of.channel;
    for (int i = 0; i < w.height; ++i) {
      const int in_y =
          source_of(y, i, w.stride_y, w.padding_y, w.dilation_y, from.height, w.transposed);
      if (in_y < 0) continue;
      for (int j = 0; j < w.width; ++j) {
        const int in_x =
            source_of(x, j, w.stride_x, w.padding_x, w.dilation_x, from.width, w.transposed);
        if (in_x < 0) continue;
        sum += static_cast<float>(plane[in_y * of.row + in_x * of.column]) *
               static_cast<float>(row[i * w.width + j]);
      }
    }
  }
  if (w.has_bias) sum += static_cast<float>(bias[channel]);
  out[thread_index] = static_cast<T>(sum);
}

#define INSTANTIATE(T)                                                                      \
  template [[host_name("multiply_" #T)]] kernel void multiply<T>(                           \
      device T* out [[buffer(0)]], device const T* a [[buffer(1)]],                         \
      device const T* b [[buffer(2)]], device const T* addend [[buffer(3)]],                \
      constant Extents& p [[buffer(4)]], constant Strides& of_a [[buffer(5)]],              \
      constant Strides& of_b [[buffer(6)]], constant Strides& of_addend [[buffer(7)]],      \
      uint3 group [[threadgroup_position_in_grid]],                                         \
      uint3 place [[thread_position_in_threadgroup]]);                                      \
  template [[host_name("convolve_" #T)]] kernel void convolve<T>(                           \
      device T* out [[buffer(0)]], device const T* input [[buffer(1)]],                     \
      device const T* weight [[buffer(2)]], device const T* bias [[buffer(3)]],             \
      constant Image& from [[buffer(4)]], constant Image& to [[buffer(5)]],                 \
      constant Window& w [[buffer(6)]], constant Places& of [[buffer(7)]],                  \
      uint thread_index [[thread_position_in_grid]]);

INSTANTIATE(float)
INSTANTIATE(half)
INSTANTIATE(bfloat)
