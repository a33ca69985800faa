// Running results along an axis of dense memory [outer, length, inner], one thread a row.
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void cumsum(device const T* from [[buffer(0)]], device T* to [[buffer(1)]],
                   constant long& length [[buffer(2)]], constant long& inner [[buffer(3)]],
                   uint row [[thread_position_in_grid]]) {
  long at = row / inner * length * inner + row % inner;
  T total = 0;
  for (long i = 0; i < length; ++i, at += inner) {
    total += from[at];
    to[at] = total;
  }
}

template <typename T>
kernel void cumprod(device const T* from [[buffer(0)]], device T* to [[buffer(1)]],
                    constant long& length [[buffer(2)]], constant long& inner [[buffer(3)]],
                    uint row [[thread_position_in_grid]]) {
  long at = row / inner * length * inner + row % inner;
  T total = 1;
  for (long i = 0; i < length; ++i, at += inner) {
    total *= from[at];
    to[at] = total;
  }
}

// sign = 1: the largest so far; -1: the smallest. NaN wins, and of equal values the last.
template <typename T>
kernel void cumextreme(device const T* from [[buffer(0)]], device T* to [[buffer(1)]],
                       device long* where [[buffer(2)]], constant long& length [[buffer(3)]],
                       constant long& inner [[buffer(4)]], constant int& sign [[buffer(5)]],
                       uint row [[thread_position_in_grid]]) {
  long at = row / inner * length * inner + row % inner;
  T best = from[at];
  long place = 0;
  for (long i = 0; i < length; ++i, at += inner) {
    const T value = from[at];
    const bool better = sign > 0 ? value >= best : value <= best;
    if (value != value || (best == best && better)) {
      best = value;
      place = i;
    }
    to[at] = best;
    where[at] = place;
  }
}

#define INSTANTIATE(T)                                                                       \
  template [[host_name("cumsum_" #T)]] kernel void cumsum<T>(                                \
      device const T* from [[buffer(0)]], device T* to [[buffer(1)]],                        \
      constant long& length [[buffer(2)]], constant long& inner [[buffer(3)]],               \
      uint row [[thread_position_in_grid]]);                                                 \
  template [[host_name("cumprod_" #T)]] kernel void cumprod<T>(                              \
      device const T* from [[buffer(0)]], device T* to [[buffer(1)]],                        \
      constant long& length [[buffer(2)]], constant long& inner [[buffer(3)]],               \
      uint row [[thread_position_in_grid]]);                                                 \
  template [[host_name("cumextreme_" #T)]] kernel void cumextreme<T>(                        \
      device const T* from [[buffer(0)]], device T* to [[buffer(1)]],                        \
      device long* where [[buffer(2)]], constant long& length [[buffer(3)]],                 \
      constant long& inner [[buffer(4)]], constant int& sign [[buffer(5)]],                  \
      uint row [[thread_position_in_grid]]);

INSTANTIATE(float)
INSTANTIATE(long)

kernel void logcumsumexp(device const float* from [[buffer(0)]], device float* to [[buffer(1)]],
                         constant long& length [[buffer(2)]], constant long& inner [[buffer(3)]],
                         uint row [[thread_position_in_grid]]) {
  long at = row / inner * length * inner + row % inner;
  float total = -INFINITY;
  for (long i = 0; i < length; ++i, at += inner) {
    const float value = from[at];
    const float high = max(total, value);
    const float low = min(total, value);
    if (total != total || value != value) {
      total = total + value;
    } else if (isinf(high)) {
      total = high;  // their difference would be NaN
    } else {
      total = high + log(1.0f + exp(low - high));
    }
    to[at] = total;
  }
}
