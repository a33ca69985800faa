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

// Folds the values of active lanes below `end`, in the order of lanes.
template <class T, class Function>
MENAGERIE_UNCHECKED __attribute__((noinline)) T fold(uint end, T start, bool started,
                                                     Function function) {
  const Simd& simd = *current()->simd;
  const uint active = simd.active[1 - simd.turn];
  T result = start;
  for (uint lane = 0; lane < end; ++lane) {
    if ((active >> lane & 1) == 0) continue;
    T value;
    __builtin_memcpy(&value, simd.slots[1 - simd.turn][lane], sizeof(T));
    result = started ? T(function(result, value)) : value;
    started = true;
  }
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
  return Address(place) - Address(current()) < kStackBytes;
}

}  // namespace menagerie::emulated

namespace metal {

MENAGERIE_THREADS void threadgroup_barrier(mem_flags) { menagerie::emulated::group_barrier(); }
MENAGERIE_THREADS void simdgroup_barrier(mem_flags) { menagerie::emulated::simd_barrier(); }

#define MENAGERIE_FOLD(name, ...)                                                    \
  template <class T>                                                                 \
  MENAGERIE_THREADS T name(T value) {                                                \
    menagerie::emulated::publish(value);                                             \
    return menagerie::emulated::fold<T>(menagerie::emulated::kSimdWidth, T(), false, \
                                        [](T a, T b) { return __VA_ARGS__; });       \
  }
MENAGERIE_FOLD(simd_sum, a + b)
MENAGERIE_FOLD(simd_product, a* b)
MENAGERIE_FOLD(simd_max, max(a, b))
MENAGERIE_FOLD(simd_min, min(a, b))
MENAGERIE_FOLD(simd_and, a& b)
MENAGERIE_FOLD(simd_or, a | b)
MENAGERIE_FOLD(simd_xor, a ^ b)
#undef MENAGERIE_FOLD

#define MENAGERIE_PREFIX(name, start, op)                                                     \
  template <class T>                                                                          \
  MENAGERIE_THREADS T simd_prefix_inclusive_##name(T value) {                                 \
    menagerie::emulated::publish(value);                                                      \
    return menagerie::emulated::fold<T>(menagerie::emulated::this_lane() + 1, T(start), true, \
                                        [](T a, T b) { return a op b; });                     \
  }                                                                                           \
  template <class T>                                                                          \
  MENAGERIE_THREADS T simd_prefix_exclusive_##name(T value) {                                 \
    menagerie::emulated::publish(value);                                                      \
    return menagerie::emulated::fold<T>(menagerie::emulated::this_lane(), T(start), true,     \
                                        [](T a, T b) { return a op b; });                     \
  }
MENAGERIE_PREFIX(sum, 0, +)
MENAGERIE_PREFIX(product, 1, *)
#undef MENAGERIE_PREFIX

template <class T>
MENAGERIE_THREADS T simd_shuffle(T value, ushort lane) {
  menagerie::emulated::publish(value);
  return menagerie::emulated::lane_value<T>(lane);
}
template <class T>
MENAGERIE_THREADS T simd_broadcast(T value, ushort lane) {
  menagerie::emulated::publish(value);
  return menagerie::emulated::lane_value<T>(lane);
}
template <class T>
MENAGERIE_THREADS T simd_broadcast_first(T value) {
  menagerie::emulated::publish(value);
  return menagerie::emulated::lane_value<T>(__builtin_ctz(menagerie::emulated::active_lanes()));
}
template <class T>
MENAGERIE_THREADS T simd_shuffle_xor(T value, ushort mask) {
  menagerie::emulated::publish(value);
  return menagerie::emulated::lane_value<T>(menagerie::emulated::this_lane() ^ mask);
}
// Lanes past the end keep their own value; Metal leaves the choice open.
template <class T>
MENAGERIE_THREADS T simd_shuffle_up(T value, ushort by) {
  menagerie::emulated::publish(value);
  const uint lane = menagerie::emulated::this_lane();
  return lane >= by ? menagerie::emulated::lane_value_or_zero<T>(lane - by) : value;
}
template <class T>
MENAGERIE_THREADS T simd_shuffle_rotate_up(T value, ushort by) {
  menagerie::emulated::publish(value);
  return menagerie::emulated::lane_value<T>((menagerie::emulated::this_lane() + 32 - by) % 32);
}
template <class T>
MENAGERIE_THREADS T simd_shuffle_down(T value, ushort by) {
  menagerie::emulated::publish(value);
  const uint lane = menagerie::emulated::this_lane() + by;
  return lane < 32 ? menagerie::emulated::lane_value_or_zero<T>(lane) : value;
}
template <class T>
MENAGERIE_THREADS T simd_shuffle_rotate_down(T value, ushort by) {
  menagerie::emulated::publish(value);
  return menagerie::emulated::lane_value<T>((menagerie::emulated::this_lane() + by) % 32);
}
template <class T>
MENAGERIE_THREADS T simd_shuffle_and_fill_down(T value, T fill, ushort by) {
  menagerie::emulated::publish(value);
  const uint lane = menagerie::emulated::this_lane() + by;
  return lane < 32 ? menagerie::emulated::lane_value_or_zero<T>(lane) : fill;
}
template <class T>
MENAGERIE_THREADS T simd_shuffle_and_fill_up(T value, T fill, ushort by) {
  menagerie::emulated::publish(value);
  const uint lane = menagerie::emulated::this_lane();
  return lane >= by ? menagerie::emulated::lane_value_or_zero<T>(lane - by) : fill;
}

class simd_vote {
 public:
  using vote_t = ulong;
  explicit constexpr simd_vote(vote_t lanes = 0) : lanes_(lanes) {}
  explicit constexpr operator vote_t() const { return lanes_; }
  constexpr bool all() const { return lanes_ == 0xFFFFFFFFUL; }
  constexpr bool any() const { return lanes_ != 0; }

 private:
  vote_t lanes_;
};

MENAGERIE_THREADS simd_vote simd_ballot(bool value) {
  menagerie::emulated::publish(ulong(value) << menagerie::emulated::this_lane());
  return simd_vote(menagerie::emulated::fold<ulong>(menagerie::emulated::kSimdWidth, 0UL, true,
                                                    [](ulong a, ulong b) { return a | b; }));
}
MENAGERIE_THREADS simd_vote simd_active_threads_mask() { return simd_ballot(true); }
MENAGERIE_THREADS bool simd_is_first() {
  return menagerie::emulated::this_lane() == uint(__builtin_ctzl(ulong(simd_ballot(true))));
}
MENAGERIE_THREADS bool simd_any(bool value) { return ulong(simd_ballot(value)) != 0; }
MENAGERIE_THREADS bool simd_all(bool value) { return ulong(simd_ballot(!value)) == 0; }

// Four neighbours of a SIMD group; all of them must come.
template <class T>
MENAGERIE_THREADS T quad_shuffle(T value, ushort lane) {
  menagerie::emulated::publish(value);
  return menagerie::emulated::lane_value<T>(menagerie::emulated::this_lane() / 4 * 4 + lane);
}
template <class T>
MENAGERIE_THREADS T quad_broadcast(T value, ushort lane) {
  return quad_shuffle(value, lane);
}
template <class T>
MENAGERIE_THREADS T quad_shuffle_xor(T value, ushort mask) {
  return quad_shuffle(value, menagerie::emulated::this_lane() % 4 ^ mask);
}
template <class T>
MENAGERIE_THREADS T quad_shuffle_up(T value, ushort by) {
  const uint lane = menagerie::emulated::this_lane() % 4;
  return quad_shuffle(value, lane >= by ? lane - by : lane);
}
template <class T>
MENAGERIE_THREADS T quad_shuffle_down(T value, ushort by) {
  const uint lane = menagerie::emulated::this_lane() % 4;
  return quad_shuffle(value, lane + by < 4 ? lane + by : lane);
}
#define MENAGERIE_QUAD(name, ...)                                \
  template <class T>                                             \
  MENAGERIE_THREADS T name(T value) {                            \
    menagerie::emulated::publish(value);                         \
    const uint first = menagerie::emulated::this_lane() / 4 * 4; \
    T a = menagerie::emulated::lane_value<T>(first);             \
    for (uint i = 1; i < 4; ++i) {                               \
      const T b = menagerie::emulated::lane_value<T>(first + i); \
      a = __VA_ARGS__;                                           \
    }                                                            \
    return a;                                                    \
  }
MENAGERIE_QUAD(quad_sum, a + b)
MENAGERIE_QUAD(quad_product, a* b)
MENAGERIE_QUAD(quad_max, max(a, b))
MENAGERIE_QUAD(quad_min, min(a, b))
#undef MENAGERIE_QUAD
MENAGERIE_THREADS bool quad_any(bool value) { return quad_max(uint(value)) != 0; }
MENAGERIE_THREADS bool quad_all(bool value) { return quad_min(uint(value)) != 0; }

}  // namespace metal
