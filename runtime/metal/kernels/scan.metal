// Running results along an axis of dense memory [outer, length, inner]. Each of a row's threads
// walks a stretch of it twice: for what the stretch comes to, and, when it knows what those before
// it come to, for its places.
#include <metal_stdlib>
using namespace metal;

struct Rows {
  long length;
  long inner;
  int parts;  // threads of a row, a power of two that divides kThreads
};

constant constexpr uint kThreads = 256;  // of a group, at most

// What some values in a row come to; `none` is of no values. `take` adds the next value, `join` what
// comes after them.
template <typename T>
struct Sum {
  T total;

  static Sum none() { return {T(0)}; }
  void take(T value, long) { total += value; }
  void join(Sum later) { total += later.total; }
};

template <typename T>
struct Product {
  T total;

  static Product none() { return {T(1)}; }
  void take(T value, long) { total *= value; }
  void join(Product later) { total *= later.total; }
};

// log(exp(..) + exp(..))
template <typename T>
struct LogSum {
  T total;

  static LogSum none() { return {-INFINITY}; }
  void take(T value, long) {
    const T high = max(total, value);
    const T low = min(total, value);
    if (total != total || value != value) {
      total = total + value;
    } else if (isinf(high)) {
      total = high;  // their difference would be NaN
    } else {
      total = high + log(1.0f + exp(low - high));
    }
  }
  void join(LogSum later) { take(later.total, 0); }
};

// The largest or the smallest value, and its position. NaN wins, and of equal values the last.
template <typename T, bool Largest>
struct Extreme {
  T best;
  long place;

  static Extreme none() { return {T(0), -1}; }
  void take(T value, long at) {
    const bool better = Largest ? value >= best : value <= best;
    if (place < 0 || value != value || (best == best && better)) {
      best = value;
      place = at;
    }
  }
  void join(Extreme later) {
    if (later.place >= 0) take(later.best, later.place);
  }
};

// Where in memory a thread's stretch of a row begins, and which places of the row it has.
struct Stretch {
  long first;
  long begin;
  long end;
};

Stretch stretch_of(constant Rows& rows, uint thread_index) {
  const long row = thread_index / rows.parts;
  const long length = (rows.length + rows.parts - 1) / rows.parts;
  const long begin = min(rows.length, thread_index % rows.parts * length);
  const long first = row / rows.inner * rows.length * rows.inner + row % rows.inner;
  return {first + begin * rows.inner, begin, min(rows.length, begin + length)};
}

// What the stretches before this thread's come to. After each step a thread knows of twice as many
// (Hillis and Steele, "Data parallel algorithms", 1986).
template <typename Kind, typename T>
Kind before(device const T* from, constant Rows& rows, Stretch stretch, threadgroup Kind* known,
            uint index) {
  if (rows.parts == 1) return Kind::none();
  const uint part = index % rows.parts;
  Kind mine = Kind::none();
  long at = stretch.first;
  for (long i = stretch.begin; i < stretch.end; ++i, at += rows.inner) mine.take(from[at], i);
  known[index] = mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint distance = 1; distance < static_cast<uint>(rows.parts); distance *= 2) {
    if (part >= distance) {
      Kind all = known[index - distance];
      all.join(mine);
      mine = all;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    known[index] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (part == 0) return Kind::none();
  return known[index - 1];
}

template <typename T, typename Kind>
kernel void accumulate(device const T* from [[buffer(0)]], device T* to [[buffer(1)]],
                       constant Rows& rows [[buffer(2)]],
                       uint thread_index [[thread_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]]) {
  threadgroup Kind known[kThreads];
  const Stretch stretch = stretch_of(rows, thread_index);
  Kind running = before<Kind>(from, rows, stretch, known, index);
  long at = stretch.first;
  for (long i = stretch.begin; i < stretch.end; ++i, at += rows.inner) {
    running.take(from[at], i);
    to[at] = running.total;
  }
}

template <typename T, bool Largest>
kernel void extremes(device const T* from [[buffer(0)]], device T* to [[buffer(1)]],
                     device long* where [[buffer(2)]], constant Rows& rows [[buffer(3)]],
                     uint thread_index [[thread_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  typedef Extreme<T, Largest> Kind;
  threadgroup Kind known[kThreads];
  const Stretch stretch = stretch_of(rows, thread_index);
  Kind running = before<Kind>(from, rows, stretch, known, index);
  long at = stretch.first;
  for (long i = stretch.begin; i < stretch.end; ++i, at += rows.inner) {
    running.take(from[at], i);
    to[at] = running.best;
    where[at] = running.place;
  }
}

#define ACCUMULATE(NAME, T, KIND)            \
  template [[host_name(NAME #T)]] [[kernel]] \
  decltype(accumulate<T, KIND<T>>) accumulate<T, KIND<T>>;
#define EXTREMES(NAME, T, LARGEST)           \
  template [[host_name(NAME #T)]] [[kernel]] \
  decltype(extremes<T, LARGEST>) extremes<T, LARGEST>;

ACCUMULATE("cumsum_", float, Sum)
ACCUMULATE("cumsum_", long, Sum)
ACCUMULATE("cumprod_", float, Product)
ACCUMULATE("cumprod_", long, Product)
ACCUMULATE("logcumsumexp_", float, LogSum)
EXTREMES("cummax_", float, true)
EXTREMES("cummax_", long, true)
EXTREMES("cummin_", float, false)
EXTREMES("cummin_", long, false)
