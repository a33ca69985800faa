// Convolutions an element a thread: depthwise ones, and of other groups and transposed ones those
// that MPSGraph computes wrong. Sums are of single precision and rounded once.
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
kernel void convolve_elements(device T* out [[buffer(0)]], device const T* input [[buffer(1)]],
                     device const T* weight [[buffer(2)]], device const T* bias [[buffer(3)]],
                     constant Image& from [[buffer(4)]], constant Image& to [[buffer(5)]],
                     constant Window& w [[buffer(6)]],
                     constant Grouping& grouping [[buffer(7)]],
                     constant Places& of [[buffer(8)]],
                     device const T* other [[buffer(9)]], constant Finish& finish [[buffer(10)]],
                     constant Beside& of_other [[buffer(11)]],
                     uint thread_index [[thread_position_in_grid]]) {
  const int x = thread_index % to.width;
  const int y = thread_index / to.width % to.height;
  const int channel = thread_index / to.width / to.height % to.channels;
  const long image = thread_index / to.width / to.height / to.channels;
  const int in_group = from.channels / grouping.groups;
  const int out_group = to.channels / grouping.groups;
  const int first = channel / out_group * in_group;
  float sum = 0;
  for (int c = 0; c < in_group; ++c) {
    const long taps = grouping.transposed
                          ? static_cast<long>(first + c) * out_group + channel % out_group
                          : static_cast<long>(channel) * in_group + c;
    device const T* row = weight + taps * w.height * w.width;
    device const T* plane = input + image * of.image + (first + c) * of.channel;
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

#define INSTANTIATE(T)                                       \
  template [[host_name("convolve_elements_" #T)]] [[kernel]] \
  decltype(convolve_elements<T>) convolve_elements<T>;

INSTANTIATE(float)
INSTANTIATE(half)
INSTANTIATE(bfloat)
