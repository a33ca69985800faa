// Bitonic sorting of rows of dense memory [outer, length, inner] (Batcher, 1968). What moves is
// each row's order, a list of positions that is padded to a power of two; positions from `length` on
// stand for nothing and come last. Ties go by position, so that the sort is stable.
#include <metal_stdlib>
using namespace metal;

kernel void start_order(device int* order [[buffer(0)]], constant int& padded [[buffer(1)]],
                        uint thread_index [[thread_position_in_grid]]) {
  order[thread_index] = thread_index % padded;
}

// NaN counts as the largest value.
template <typename T>
bool is_less(T a, T b) {
  return a < b || (b != b && a == a);
}

struct Step {
  long length;
  long inner;
  int padded;
  int block;     // this many neighbours are in one direction after the stage
  int distance;  // between the two that are compared
  int descending;
};

// One thread a pair.
template <typename T>
kernel void exchange(device const T* keys [[buffer(0)]], device int* order [[buffer(1)]],
                     constant Step& step [[buffer(2)]],
                     uint thread_index [[thread_position_in_grid]]) {
  const uint pairs = step.padded / 2;
  const long row = thread_index / pairs;
  const int pair = thread_index % pairs;
  const int first = pair / step.distance * 2 * step.distance + pair % step.distance;
  device int* mine = order + row * step.padded;
  const int a = mine[first];
  const int b = mine[first + step.distance];
  bool swapped = b < a;  // by position
  if (a < step.length && b < step.length) {
    device const T* key = keys + row / step.inner * step.length * step.inner + row % step.inner;
    const T x = key[a * step.inner];
    const T y = key[b * step.inner];
    const bool less = step.descending ? is_less(y, x) : is_less(x, y);
    const bool more = step.descending ? is_less(x, y) : is_less(y, x);
    swapped = more || (!less && swapped);
  }
  if (swapped == ((first & step.block) == 0)) {
    mine[first] = b;
    mine[first + step.distance] = a;
  }
}

#define INSTANTIATE(T)                                                                         \
  template [[host_name("exchange_" #T)]] kernel void exchange<T>(                              \
      device const T* keys [[buffer(0)]], device int* order [[buffer(1)]],                     \
      constant Step& step [[buffer(2)]], uint thread_index [[thread_position_in_grid]]);

INSTANTIATE(float)
INSTANTIATE(long)

struct Taken {
  long length;
  long inner;
  long kept;
  int padded;
};

// The first `kept` of each row: their values, copied as bits, and where they stood.
template <typename T>
kernel void take(device const T* from [[buffer(0)]], device const int* order [[buffer(1)]],
                 device T* values [[buffer(2)]], device long* indices [[buffer(3)]],
                 constant Taken& taken [[buffer(4)]],
                 uint thread_index [[thread_position_in_grid]]) {
  const long inside = thread_index % taken.inner;
  const long rank = thread_index / taken.inner % taken.kept;
  const long outer = thread_index / taken.inner / taken.kept;
  const int place = order[(outer * taken.inner + inside) * taken.padded + rank];
  values[thread_index] = from[(outer * taken.length + place) * taken.inner + inside];
  indices[thread_index] = place;
}

#define INSTANTIATE_TAKE(T, WIDTH)                                                             \
  template [[host_name("take_" #WIDTH)]] kernel void take<T>(                                  \
      device const T* from [[buffer(0)]], device const int* order [[buffer(1)]],               \
      device T* values [[buffer(2)]], device long* indices [[buffer(3)]],                      \
      constant Taken& taken [[buffer(4)]], uint thread_index [[thread_position_in_grid]]);

INSTANTIATE_TAKE(uchar, 1)
INSTANTIATE_TAKE(ushort, 2)
INSTANTIATE_TAKE(uint, 4)
INSTANTIATE_TAKE(long, 8)
