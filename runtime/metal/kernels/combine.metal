// Slices of dense memory [places, inner] combined with values at listed places. Places that come
// twice are combined in the list's order, so that results are the same in each run.
#include <metal_stdlib>
using namespace metal;

#include "reductions.h"

struct List {
  long count;
  long inner;
  int reduction;
};

// One thread an element of a slice: it walks the whole list.
template <typename T>
kernel void combine_in_turn(device T* to [[buffer(0)]], device const T* values [[buffer(1)]],
                            device const long* places [[buffer(2)]],
                            constant List& list [[buffer(3)]],
                            uint inside [[thread_position_in_grid]]) {
  for (long i = 0; i < list.count; ++i) {
    device T* element = to + places[i] * list.inner + inside;
    *element = combined(*element, values[i * list.inner + inside], list.reduction);
  }
}

// One thread an element of a value: of those for one place the first in the list's sorted order
// walks them all, the others do nothing.
template <typename T>
kernel void combine_sorted(device T* to [[buffer(0)]], device const T* values [[buffer(1)]],
                           device const long* places [[buffer(2)]],
                           constant List& list [[buffer(3)]],
                           device const int* order [[buffer(4)]],
                           uint thread_index [[thread_position_in_grid]]) {
  const long inside = thread_index % list.inner;
  long rank = thread_index / list.inner;
  const long place = places[order[rank]];
  if (rank > 0 && places[order[rank - 1]] == place) return;
  device T* element = to + place * list.inner + inside;
  T result = *element;
  for (; rank < list.count && places[order[rank]] == place; ++rank) {
    result = combined(result, values[order[rank] * list.inner + inside], list.reduction);
  }
  *element = result;
}

#define INSTANTIATE(T)                                     \
  template [[host_name("combine_in_turn_" #T)]] [[kernel]] \
  decltype(combine_in_turn<T>) combine_in_turn<T>;         \
  template [[host_name("combine_sorted_" #T)]] [[kernel]]  \
  decltype(combine_sorted<T>) combine_sorted<T>;

INSTANTIATE(uchar)
INSTANTIATE(ushort)
INSTANTIATE(uint)
INSTANTIATE(long)
INSTANTIATE(float)
