// Bitonic sorting of rows of dense memory [outer, length, inner] (Batcher, 1968). What moves is
// each row's order, a list of positions that is padded to a power of two; positions from `length` on
// stand for nothing and come last. Ties go by position, so that the sort is stable.
#include <metal_stdlib>
using namespace metal;

constant constexpr int kHeld = 1024;  // neighbours that a group of threads sorts by itself

struct Stages {
  long length;
  long inner;
  long total;  // positions of all rows
  int padded;
  int block;     // this many neighbours are in one direction after the first stage
  int last;      // and after the last one
  int distance;  // between the two that are compared
  int descending;
};

// NaN counts as the largest value.
template <typename T>
bool is_less(T a, T b) {
  return a < b || (b != b && a == a);
}

// A position of a row, and its value.
template <typename T>
struct Entry {
  int position;
  T key;
};

template <typename T>
Entry<T> entry_of(device const T* keys, constant Stages& stages, long row, int position) {
  if (position >= stages.length) return {position, T(0)};
  const long first = row / stages.inner * stages.length * stages.inner + row % stages.inner;
  return {position, keys[first + position * stages.inner]};
}

template <typename T>
bool is_behind(Entry<T> a, Entry<T> b, constant Stages& stages) {
  const bool later = b.position < a.position;
  if (a.position >= stages.length || b.position >= stages.length) return later;
  const bool less = stages.descending ? is_less(b.key, a.key) : is_less(a.key, b.key);
  const bool more = stages.descending ? is_less(a.key, b.key) : is_less(b.key, a.key);
  return more || (!less && later);
}

// The first of a pair of neighbours at this distance.
int first_of(int pair, int distance) {
  return pair / distance * 2 * distance + pair % distance;
}

// All stages up to `last` of which each compares what lies within kHeld places; the first of all
// begins with each row's positions as they are.
template <typename T>
kernel void sort_held(device const T* keys [[buffer(0)]], device int* order [[buffer(1)]],
                      constant Stages& stages [[buffer(2)]],
                      uint group [[threadgroup_position_in_grid]],
                      uint index [[thread_index_in_threadgroup]],
                      uint threads [[threads_per_threadgroup]]) {
  threadgroup Entry<T> held[kHeld];
  const long start = static_cast<long>(group) * kHeld;
  const int count = min(static_cast<long>(kHeld), stages.total - start);
  for (int i = index; i < count; i += threads) {
    const long at = start + i;
    const int position = stages.block == 2 ? at % stages.padded : order[at];
    held[i] = entry_of(keys, stages, at / stages.padded, position);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int block = stages.block; block <= stages.last; block *= 2) {
    for (int distance = min(block, kHeld) / 2; distance > 0; distance /= 2) {
      for (int pair = index; pair < count / 2; pair += threads) {
        const int first = first_of(pair, distance);
        const Entry<T> a = held[first];
        const Entry<T> b = held[first + distance];
        const bool upward = ((start + first) % stages.padded & block) == 0;
        if (is_behind(a, b, stages) == upward) {
          held[first] = b;
          held[first + distance] = a;
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  for (int i = index; i < count; i += threads) order[start + i] = held[i].position;
}

// One stage, one thread a pair.
template <typename T>
kernel void exchange(device const T* keys [[buffer(0)]], device int* order [[buffer(1)]],
                     constant Stages& stages [[buffer(2)]],
                     uint thread_index [[thread_position_in_grid]]) {
  const uint pairs = stages.padded / 2;
  const long row = thread_index / pairs;
  const int first = first_of(thread_index % pairs, stages.distance);
  device int* mine = order + row * stages.padded;
  const int a = mine[first];
  const int b = mine[first + stages.distance];
  const bool behind =
      is_behind(entry_of(keys, stages, row, a), entry_of(keys, stages, row, b), stages);
  if (behind == ((first & stages.block) == 0)) {
    mine[first] = b;
    mine[first + stages.distance] = a;
  }
}

#define INSTANTIATE(T)                               \
  template [[host_name("sort_held_" #T)]] [[kernel]] \
  decltype(sort_held<T>) sort_held<T>;               \
  template [[host_name("exchange_" #T)]] [[kernel]]  \
  decltype(exchange<T>) exchange<T>;

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

#define INSTANTIATE_TAKE(T, WIDTH)                  \
  template [[host_name("take_" #WIDTH)]] [[kernel]] \
  decltype(take<T>) take<T>;

INSTANTIATE_TAKE(uchar, 1)
INSTANTIATE_TAKE(ushort, 2)
INSTANTIATE_TAKE(uint, 4)
INSTANTIATE_TAKE(long, 8)
