// Pooling of dense planes [planes, depth, height, width], one thread an element of the result.
#include <metal_stdlib>
using namespace metal;

// Of depth, height and width. A window of zero stands for an adaptive one, which divides the
// axis.
struct Windows {
  int input[3];
  int output[3];
  int window[3];
  int stride[3];
};

struct Reach {
  int padding[3];
  int dilation[3];
  int count_padding;
  int divisor;  // zero: the number of elements
};

// What one element of the result looks at along an axis, and how long the window is with what
// hangs over into the padding.
struct Stretch {
  int first;
  int end;
  int step;
  int padded_length;
};

Stretch stretch_of(constant Windows& windows, constant Reach& reach, int axis, int position) {
  const int input = windows.input[axis];
  const int output = windows.output[axis];
  Stretch stretch;
  if (windows.window[axis] == 0) {
    stretch.first = (long)position * input / output;
    stretch.end = ((long)(position + 1) * input + output - 1) / output;
    stretch.step = 1;
    stretch.padded_length = stretch.end - stretch.first;
    return stretch;
  }
  const int step = reach.dilation[axis];
  const int start = position * windows.stride[axis] - reach.padding[axis];
  stretch.first = start < 0 ? start + (-start + step - 1) / step * step : start;
  stretch.end = min(start + step * (windows.window[axis] - 1) + 1, input);
  stretch.step = step;
  stretch.padded_length = min(start + windows.window[axis], input + reach.padding[axis]) - start;
  return stretch;
}

// Position in the result, along depth, height and width, and the plane in the last component.
int4 place_of(constant Windows& windows, uint thread_index) {
  int4 place;
  place.z = thread_index % windows.output[2];
  thread_index /= windows.output[2];
  place.y = thread_index % windows.output[1];
  thread_index /= windows.output[1];
  place.x = thread_index % windows.output[0];
  place.w = thread_index / windows.output[0];
  return place;
}

template <typename T, typename Sum>
kernel void average(device const T* from [[buffer(0)]], device T* to [[buffer(1)]],
                    constant Windows& windows [[buffer(2)]], constant Reach& reach [[buffer(3)]],
                    uint thread_index [[thread_position_in_grid]]) {
  const int4 place = place_of(windows, thread_index);
  const Stretch z = stretch_of(windows, reach, 0, place.x);
  const Stretch y = stretch_of(windows, reach, 1, place.y);
  const Stretch x = stretch_of(windows, reach, 2, place.z);
  Sum sum = 0;
  for (int k = z.first; k < z.end; k += z.step) {
    for (int j = y.first; j < y.end; j += y.step) {
      const long line =
          (((long)place.w * windows.input[0] + k) * windows.input[1] + j) * windows.input[2];
      for (int i = x.first; i < x.end; i += x.step) sum += static_cast<Sum>(from[line + i]);
    }
  }
  int count = (z.end - z.first) * (y.end - y.first) * (x.end - x.first);
  if (reach.count_padding) count = z.padded_length * y.padded_length * x.padded_length;
  if (reach.divisor != 0) count = reach.divisor;
  to[thread_index] = static_cast<T>(sum / static_cast<Sum>(count));
}

// Indices count the plane's elements. NaN wins.
template <typename T>
kernel void largest(device const T* from [[buffer(0)]], device T* to [[buffer(1)]],
                    device long* indices [[buffer(2)]], constant Windows& windows [[buffer(3)]],
                    constant Reach& reach [[buffer(4)]],
                    uint thread_index [[thread_position_in_grid]]) {
  const int4 place = place_of(windows, thread_index);
  const Stretch z = stretch_of(windows, reach, 0, place.x);
  const Stretch y = stretch_of(windows, reach, 1, place.y);
  const Stretch x = stretch_of(windows, reach, 2, place.z);
  const long volume = (long)windows.input[0] * windows.input[1] * windows.input[2];
  device const T* plane = from + place.w * volume;
  long best = ((long)z.first * windows.input[1] + y.first) * windows.input[2] + x.first;
  T most = plane[best];
  for (int k = z.first; k < z.end; k += z.step) {
    for (int j = y.first; j < y.end; j += y.step) {
      const long line = ((long)k * windows.input[1] + j) * windows.input[2];
      for (int i = x.first; i < x.end; i += x.step) {
        const T value = plane[line + i];
        if (value > most || value != value) {
          most = value;
          best = line + i;
        }
      }
    }
  }
  to[thread_index] = most;
  indices[thread_index] = best;
}

#define INSTANTIATE(T, SUM)                        \
  template [[host_name("average_" #T)]] [[kernel]] \
  decltype(average<T, SUM>) average<T, SUM>;       \
  template [[host_name("largest_" #T)]] [[kernel]] \
  decltype(largest<T>) largest<T>;

INSTANTIATE(float, float)
INSTANTIATE(half, float)
INSTANTIATE(bfloat, float)
INSTANTIATE(long, long)
