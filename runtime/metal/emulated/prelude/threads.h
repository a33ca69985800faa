// Barriers, operations of a SIMD group and threadgroup memory (Metal Shading Language
// Specification, 6.9). An operation publishes the lane's value, waits for its SIMD group and folds
// what the lanes that came there have published. Lanes that did not come are inactive.
#pragma once

// The place of an operation is its return address, so the optimiser must neither merge it with
// another one (nomerge) nor double it or make it depend on more conditions (convergent, which LLVM
// takes away from functions whose body it understands: optnone).
#define MENAGERIE_MEETING \
  __attribute__((noinline, convergent, nomerge, optnone)) MENAGERIE_UNCHECKED
#define MENAGERIE_THREADS __attribute__((always_inline, convergent)) inline

namespace menagerie::emulated {

MENAGERIE_MEETING inline void group_barrier() {
  Fiber* fiber = current();
  fiber->group->host->wait_for_group(fiber, __builtin_return_address(0));
}

MENAGERIE_MEETING inline void simd_barrier() {
  Fiber* fiber = current();
  fiber->group->host->wait_for_simd(fiber, __builtin_return_address(0));
}

// Publishes a value and waits; reads the others' with lane_value() afterwards.
MENAGERIE_MEETING inline void exchange(ulong low, ulong high) {
  Fiber* fiber = current();
  Simd& simd = *fiber->simd;
  const ulong value[2] = {low, high};
  __builtin_memcpy(simd.slots[simd.turn][fiber->lane], value, kSlotBytes);
  fiber->group->host->wait_for_simd(fiber, __builtin_return_address(0));
}

template <class T>
MENAGERIE_THREADS void publish(const T& value) {
  static_assert(sizeof(T) <= kSlotBytes);
  ulong words[2] = {0, 0};
  __builtin_memcpy(words, &value, sizeof(T));
  exchange(words[0], words[1]);
}

MENAGERIE_UNCHECKED inline uint active_lanes() {
  const Simd& simd = *current()->simd;
  return simd.active[1 - simd.turn];
}

MENAGERIE_UNCHECKED inline uint this_lane() { return current()->lane; }
MENAGERIE_UNCHECKED inline uint this_thread() { return current()->thread; }

template <class T>
MENAGERIE_UNCHECKED __attribute__((noinline)) T lane_value(uint lane) {
  const Simd& simd = *current()->simd;
  if (lane >= kSimdWidth || (simd.active[1 - simd.turn] >> lane & 1) == 0) {
    fault(Fault::kInactiveLane, 0, 0, false, lane);
  }
  T value;
  __builtin_memcpy(&value, simd.slots[1 - simd.turn][lane], sizeof(T));
  return value;
}

// Zero for a lane that is not active. Strictly it is undefined; Apple's GPUs give zero, and
// torch's reductions of 64-bit integers rely on it (c10/metal/reduction_utils.h).
template <class T>
MENAGERIE_UNCHECKED __attribute__((noinline)) T lane_value_or_zero(uint lane) {
  const Simd& simd = *current()->simd;
  T value;
  __builtin_memset(&value, 0, sizeof(T));
  if (simd.active[1 - simd.turn] >> lane & 1) {
    __builtin_memcpy(&value, simd.slots[1 - simd.turn][lane], sizeof(T));
  }
  return value;
}

// Folds the values of active lanes from `begin` to below `end`, in the order of lanes.
template <class T, class Function>
MENAGERIE_UNCHECKED __attribute__((noinline)) T fold(uint begin, uint end, T start, bool started,
                                                     Function function) {
  const Simd& simd = *current()->simd;
  const uint active = simd.active[1 - simd.turn];
  T result = start;
  for (uint lane = begin; lane < end; ++lane) {
    if ((active >> lane & 1) == 0) continue;
    T value;
    __builtin_memcpy(&value, simd.slots[1 - simd.turn][lane], sizeof(T));
    result = started ? T(function(result, value)) : value;
    started = true;
  }
  return result;
}

// The same of all lanes, which the first one that asks folds for the others.
template <class T, class Function>
MENAGERIE_UNCHECKED __attribute__((noinline)) T fold_all(Function function) {
  Simd& simd = *current()->simd;
  T result;
  if (simd.folded_clock != simd.clock) {
    result = fold<T>(0, kSimdWidth, T(), false, function);
    __builtin_memcpy(simd.folded, &result, sizeof(T));
    simd.folded_clock = simd.clock;
  }
  __builtin_memcpy(&result, simd.folded, sizeof(T));
  return result;
}

// Granules of threadgroup memory: elements where they are scalars or vectors.
template <class T>
inline constexpr uint kGranule = alignof(T);
template <class T, uint N>
inline constexpr uint kGranule<metal::vec<T, N>> = sizeof(metal::vec<T, N>);

__attribute__((noinline)) MENAGERIE_UNCHECKED inline void* local_memory(uint id, uint bytes,
                                                                        uint alignment,
                                                                        uint granule) {
  Local& local = current()->group->local;
  for (uint i = 0; i < local.count; ++i) {
    if (local.variables[i].id == id) return local.memory + local.variables[i].offset;
  }
  if (local.used + bytes > kThreadgroupBytes || local.count == kMaxVariables) {
    fault(Fault::kTooMuchLocal, 0, local.used + bytes, false);
  }
  const uint offset = (local.end + kRedZone + alignment - 1) / alignment * alignment;
  local.variables[local.count++] = {id, offset, bytes, uint(__builtin_ctz(granule))};
  local.used += bytes;
  local.end = offset + bytes;
  return local.memory + offset;
}

template <uint Id, class T>
MENAGERIE_THREADS T& local_variable() {
  constexpr uint granule = kGranule<metal::remove_all_extents_t<T>>;
  return *static_cast<T*>(local_memory(Id, sizeof(T), alignof(T), granule));
}

// Which of a function's overloads by address space is meant.
MENAGERIE_UNCHECKED inline bool lies_in_group(const volatile void* place) {
  return Address(place) - Address(current()->group->local.memory) < kLocalBytes;
}
MENAGERIE_UNCHECKED inline bool lies_in_thread(const volatile void* place) {
  return (Address(place) ^ Address(current())) < kStackBytes;
}

}  // namespace menagerie::emulated

namespace metal {

MENAGERIE_THREADS void threadgroup_barrier(mem_flags) { menagerie::emulated::group_barrier(); }
MENAGERIE_THREADS void simdgroup_barrier(mem_flags) { menagerie::emulated::simd_barrier(); }

// Of the SIMD group, and of four neighbours in it.
#define MENAGERIE_FOLD_OF(group, width, name, ...)                               \
  template <class T>                                                             \
  MENAGERIE_THREADS T group##_##name(T value) {                                  \
    menagerie::emulated::publish(value);                                         \
    const auto both = [](T a, T b) { return __VA_ARGS__; };                      \
    if (width == menagerie::emulated::kSimdWidth) {                              \
      return menagerie::emulated::fold_all<T>(both);                             \
    }                                                                            \
    const uint first = menagerie::emulated::this_lane() / width * width;         \
    return menagerie::emulated::fold<T>(first, first + width, T(), false, both); \
  }
#define MENAGERIE_FOLD(...)                \
  MENAGERIE_FOLD_OF(simd, 32, __VA_ARGS__) \
  MENAGERIE_FOLD_OF(quad, 4, __VA_ARGS__)
MENAGERIE_FOLD(sum, a + b)
MENAGERIE_FOLD(product, a* b)
MENAGERIE_FOLD(max, max(a, b))
MENAGERIE_FOLD(min, min(a, b))
MENAGERIE_FOLD(and, a& b)
MENAGERIE_FOLD(or, a | b)
MENAGERIE_FOLD(xor, a ^ b)
#undef MENAGERIE_FOLD
#undef MENAGERIE_FOLD_OF

#define MENAGERIE_PREFIX(group, width, name, inclusive, start, op)                              \
  template <class T>                                                                            \
  MENAGERIE_THREADS T group##_prefix_##name(T value) {                                          \
    menagerie::emulated::publish(value);                                                        \
    const uint lane = menagerie::emulated::this_lane();                                         \
    return menagerie::emulated::fold<T>(lane / width * width, lane + inclusive, T(start), true, \
                                        [](T a, T b) { return a op b; });                       \
  }
#define MENAGERIE_PREFIXES(group, width)                     \
  MENAGERIE_PREFIX(group, width, inclusive_sum, 1, 0, +)     \
  MENAGERIE_PREFIX(group, width, exclusive_sum, 0, 0, +)     \
  MENAGERIE_PREFIX(group, width, inclusive_product, 1, 1, *) \
  MENAGERIE_PREFIX(group, width, exclusive_product, 0, 1, *)
MENAGERIE_PREFIXES(simd, 32)
MENAGERIE_PREFIXES(quad, 4)
#undef MENAGERIE_PREFIXES
#undef MENAGERIE_PREFIX

namespace own {
// Lanes past the end keep their own value; Metal leaves the choice open.
template <uint Width, class T>
MENAGERIE_THREADS T shifted(T value, int by) {
  menagerie::emulated::publish(value);
  const uint lane = menagerie::emulated::this_lane(), to = lane + uint(by);
  return lane / Width == to / Width ? menagerie::emulated::lane_value_or_zero<T>(to) : value;
}
// As shifted, with what comes from the other end of `fill` where nothing comes from a value.
template <class T>
MENAGERIE_THREADS T shifted_and_filled(T value, T fill, int by, uint width) {
  struct Both {
    T value, fill;
  };
  const uint lane = menagerie::emulated::this_lane(), to = lane + uint(by);
  const bool inside = lane / width == to / width;
  const uint from = lane / width * width + to % width;
  if constexpr (sizeof(Both) <= menagerie::emulated::kSlotBytes) {
    menagerie::emulated::publish(Both{value, fill});
    const Both both = menagerie::emulated::lane_value_or_zero<Both>(from);
    return inside ? both.value : both.fill;
  } else {
    menagerie::emulated::publish(value);
    const T moved = menagerie::emulated::lane_value_or_zero<T>(from);
    menagerie::emulated::publish(fill);
    return inside ? moved : menagerie::emulated::lane_value_or_zero<T>(from);
  }
}
}  // namespace own

#define MENAGERIE_MOVE(group, width, name, parameter, ...)            \
  template <class T>                                                  \
  MENAGERIE_THREADS T group##_##name(T value, ushort parameter) {     \
    menagerie::emulated::publish(value);                              \
    const uint lane = menagerie::emulated::this_lane();               \
    const uint first = lane / width * width;                          \
    return menagerie::emulated::lane_value<T>(first + (__VA_ARGS__)); \
  }
#define MENAGERIE_FILL(group, width, name, by)                                       \
  template <class T>                                                                 \
  MENAGERIE_THREADS T group##_shuffle_and_fill_##name(T value, T fill, ushort delta, \
                                                      ushort modulo = width) {       \
    return own::shifted_and_filled(value, fill, by, modulo);                         \
  }
#define MENAGERIE_MOVES(group, width)                                              \
  MENAGERIE_MOVE(group, width, shuffle, from, from)                                \
  MENAGERIE_MOVE(group, width, broadcast, from, from)                              \
  MENAGERIE_MOVE(group, width, shuffle_xor, mask, (lane - first) ^ mask)           \
  MENAGERIE_MOVE(group, width, shuffle_rotate_up, by, (lane + width - by) % width) \
  MENAGERIE_MOVE(group, width, shuffle_rotate_down, by, (lane + by) % width)       \
  MENAGERIE_FILL(group, width, up, -int(delta))                                    \
  MENAGERIE_FILL(group, width, down, delta)                                        \
  template <class T>                                                               \
  MENAGERIE_THREADS T group##_shuffle_up(T value, ushort by) {                     \
    return own::shifted<width>(value, -int(by));                                   \
  }                                                                                \
  template <class T>                                                               \
  MENAGERIE_THREADS T group##_shuffle_down(T value, ushort by) {                   \
    return own::shifted<width>(value, by);                                         \
  }
MENAGERIE_MOVES(simd, 32)
MENAGERIE_MOVES(quad, 4)
#undef MENAGERIE_MOVES
#undef MENAGERIE_FILL
#undef MENAGERIE_MOVE

#define MENAGERIE_VOTES(group, width, Word)                                                     \
  class group##_vote {                                                                          \
   public:                                                                                      \
    using vote_t = Word;                                                                        \
    explicit constexpr group##_vote(vote_t lanes = 0) : lanes_(lanes) {}                        \
    explicit constexpr operator vote_t() const { return lanes_; }                               \
    constexpr bool all() const { return lanes_ == (1UL << width) - 1; }                         \
    constexpr bool any() const { return lanes_ != 0; }                                          \
                                                                                                \
   private:                                                                                     \
    vote_t lanes_;                                                                              \
  };                                                                                            \
  MENAGERIE_THREADS group##_vote group##_ballot(bool value) {                                   \
    const uint lane = menagerie::emulated::this_lane() % width;                                 \
    return group##_vote(group##_vote::vote_t(group##_or(uint(value) << lane)));                 \
  }                                                                                             \
  MENAGERIE_THREADS group##_vote group##_active_threads_mask() { return group##_ballot(true); } \
  MENAGERIE_THREADS bool group##_is_first() {                                                   \
    const uint active = uint(group##_vote::vote_t(group##_ballot(true)));                       \
    return menagerie::emulated::this_lane() % width == uint(__builtin_ctz(active));             \
  }                                                                                             \
  MENAGERIE_THREADS bool group##_any(bool value) { return group##_ballot(value).any(); }        \
  MENAGERIE_THREADS bool group##_all(bool value) { return !group##_ballot(!value).any(); }      \
  template <class T>                                                                            \
  MENAGERIE_THREADS T group##_broadcast_first(T value) {                                        \
    menagerie::emulated::publish(value);                                                        \
    const uint first = menagerie::emulated::this_lane() / width * width;                        \
    const uint active = menagerie::emulated::active_lanes() >> first;                           \
    return menagerie::emulated::lane_value<T>(first + uint(__builtin_ctz(active)));             \
  }
MENAGERIE_VOTES(simd, 32, ulong)
MENAGERIE_VOTES(quad, 4, uint)
#undef MENAGERIE_VOTES

}  // namespace metal
