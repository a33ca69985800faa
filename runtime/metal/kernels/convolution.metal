// Convolutions an element a thread: depthwise ones, transposed ones, and those of groups that would
// leave a tile empty. Sums are of single precision and rounded once.
#include <metal_stdlib>
using namespace metal;

#include "finish.h"
#include "images.h"

struct Grouping {
  int groups;
  int transposed;
  int has_bias;
};

// Where in the input a tap of the kernel lies, or -1: nowhere.
int source_of(int place, int tap, int stride, int padding, int dilation, int extent,
              int transposed) {
  int at =
      transposed ? place + padding - tap * dilation : place * stride - padding + tap * dilation;
  if (transposed) {
    if (at < 0 || at % stride != 0) return -1;
    at /= stride;
  }
  return at >= 0 && at < extent ? at : -1;
}

#define OPERANDS                                                                   \
  device T *out [[buffer(0)]], device const T *input [[buffer(1)]],                \
      device const T *weight [[buffer(2)]], device const T *bias [[buffer(3)]],    \
      constant Image &from [[buffer(4)]], constant Image &to [[buffer(5)]],        \
      constant Window &w [[buffer(6)]], constant Grouping &grouping [[buffer(7)]], \
      constant Places &of [[buffer(8)]], FINISH(9, 10, 11),                        \
      uint thread_index [[thread_position_in_grid]]

// One element of the result, [N, O, H, W] and dense, a thread. The weight is [O, C / groups, KH,
// KW], or [C, O / groups, KH, KW] if the convolution is transposed.
template <typename T>
kernel void convolve_elements(OPERANDS) {
  const int x = thread_index % to.width;
  const int y = thread_index / to.width % to.height;
  const int channel = thread_index / to.width / to.height % to.channels;
  const uint image = thread_index / to.width / to.height / to.channels;
  const int in_group = from.channels / grouping.groups;
  const int out_group = to.channels / grouping.groups;
  const int first = channel / out_group * in_group;
  float sum = 0;
  for (int c = 0; c < in_group; ++c) {
    const int taps = grouping.transposed ? (first + c) * out_group + channel % out_group
                                         : channel * in_group + c;
    device const T* row = weight + taps * w.height * w.width;
    device const T* plane = input + (image * of.image + (first + c) * of.channel);
    for (int i = 0; i < w.height; ++i) {
      const int in_y =
          source_of(y, i, w.stride_y, w.padding_y, w.dilation_y, from.height, grouping.transposed);
      if (in_y < 0) continue;
      for (int j = 0; j < w.width; ++j) {
        const int in_x =
            source_of(x, j, w.stride_x, w.padding_x, w.dilation_x, from.width, grouping.transposed);
        if (in_x < 0) continue;
        sum += static_cast<float>(plane[in_y * of.row + in_x * of.column]) *
               static_cast<float>(row[i * w.width + j]);
      }
    }
  }
  if (grouping.has_bias) sum += static_cast<float>(bias[channel]);
  const Finisher<T> finisher{&finish, other, &of_other, image};
  out[thread_index] = static_cast<T>(finisher(sum, channel, y * to.width + x));
}

// A channel by itself, with its own window of Rows x Columns, of images [N, C, H, W] whose rows lie
// in one piece: four neighbours of the result a thread, and of each row of the window what they
// see. Gated: of twice the channels, the second half of which gates the first one; where the other
// operand is not zero, their product counts as zero.
template <typename T, int Rows, int Columns, int Stride, bool Gated = false>
kernel void convolve_channels(OPERANDS) {
  constexpr int kEach = 4, kSeen = (kEach - 1) * Stride + Columns;
  const uint fours = (to.width + kEach - 1) / kEach;
  const uint line = thread_index / fours, x = (thread_index - line * fours) * kEach;
  const uint plane = line / to.height, y = line - plane * to.height;
  const uint image = plane / to.channels, channel = plane - image * to.channels;
  const int top = static_cast<int>(y * Stride) - w.padding_y;
  const int left = static_cast<int>(x * Stride) - w.padding_x;
  device const T* corner =
      input + (image * of.image + channel * of.channel) + (top * of.row + left);
  device const T* taps = weight + channel * (Rows * Columns);
  const Finisher<T> finisher{&finish, other, &of_other, image};
  bool within[kSeen];
#pragma unroll
  for (int j = 0; j < kSeen; ++j) within[j] = left + j >= 0 && left + j < from.width;
  Run<1> run = Run<1>::of(grouping.has_bias ? static_cast<float>(bias[channel]) : 0.0f);
#pragma unroll
  for (int i = 0; i < Rows; ++i, corner += of.row) {
    if (top + i < 0 || top + i >= from.height) continue;
    float seen[kSeen];
#pragma unroll
    for (int j = 0; j < kSeen; ++j) {
      seen[j] = within[j] ? static_cast<float>(corner[j]) : 0.0f;
      if (!Gated || !within[j]) continue;
      const float gate = static_cast<float>(corner[to.channels * of.channel + j]);
      const bool hidden = static_cast<float>(*finisher.at(channel, left + j)) != 0;
      seen[j] = hidden ? 0.0f : seen[j] * activated(kSigmoid, gate, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < Columns; ++j) {
      const float tap = static_cast<float>(taps[i * Columns + j]);
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int at = e * Stride + j;
        if (within[at]) run.fours[0][e] = fma(seen[at], tap, run.fours[0][e]);
      }
    }
  }
  const uint place = y * to.width + x, room = to.width - x;
  finisher(run, channel, place, room);
  run.store(out + (plane * (to.height * to.width) + place), room);
}

#define CHANNELS(T, Rows, Columns, Stride)                                                      \
  template [[host_name("convolve_channels_" #T "_" #Rows "_" #Columns "_" #Stride)]] [[kernel]] \
  decltype(convolve_channels<T, Rows, Columns, Stride>)                                         \
      convolve_channels<T, Rows, Columns, Stride>;

#define INSTANTIATE(T)                                                               \
  template [[host_name("convolve_elements_" #T)]] [[kernel]]                         \
  decltype(convolve_elements<T>) convolve_elements<T>;                               \
  template [[host_name("convolve_channels_gated_" #T "_1_9_1")]] [[kernel]]          \
  decltype(convolve_channels<T, 1, 9, 1, true>) convolve_channels<T, 1, 9, 1, true>; \
  CHANNELS(T, 1, 9, 1)                                                               \
  CHANNELS(T, 3, 3, 1)                                                               \
  CHANNELS(T, 3, 3, 2)                                                               \
  CHANNELS(T, 5, 5, 1)                                                               \
  CHANNELS(T, 5, 5, 2)                                                               \
  CHANNELS(T, 7, 7, 1)

INSTANTIATE(float)
INSTANTIATE(half)
INSTANTIATE(bfloat)
