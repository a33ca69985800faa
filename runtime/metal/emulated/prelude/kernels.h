// How the device calls a kernel: its parameters are bound by type, as C++ deduces them, from the
// roles that the device has read in the source.
#pragma once

namespace menagerie::emulated {

// Lets the fiber become the group's next thread.
MENAGERIE_INSIDE bool take_thread(Fiber* fiber) {
  Group& group = *fiber->group;
  if (group.next == group.threads) return false;
  fiber->thread = group.next++;
  fiber->lane = fiber->thread % kSimdWidth;
  fiber->simd = &group.simds[fiber->thread / kSimdWidth];
  for (uint axis = 0; axis < 3; ++axis) fiber->position[axis] = group.cursor[axis];
  for (uint axis = 0; axis < 3 && ++group.cursor[axis] == group.size[axis]; ++axis) {
    group.cursor[axis] = 0;
  }
  return true;
}

template <class T>
struct Position {
  static MENAGERIE_INSIDE T of(const uint* xyz) { return T(xyz[0]); }
};
template <class T>
struct Position<metal::vec<T, 2>> {
  static MENAGERIE_INSIDE metal::vec<T, 2> of(const uint* xyz) { return {T(xyz[0]), T(xyz[1])}; }
};
template <class T>
struct Position<metal::vec<T, 3>> {
  static MENAGERIE_INSIDE metal::vec<T, 3> of(const uint* xyz) {
    return {T(xyz[0]), T(xyz[1]), T(xyz[2])};
  }
};

MENAGERIE_INSIDE uint parts_of(const uint* threads, uint width = kSimdWidth) {
  return (threads[0] * threads[1] * threads[2] + width - 1) / width;
}

template <class T, int Role>
MENAGERIE_INSIDE T position(const Fiber* fiber) {
  const Group& group = *fiber->group;
  if constexpr (Role == kThreadInGrid) {
    uint xyz[3];
    for (uint axis = 0; axis < 3; ++axis) {
      xyz[axis] = group.position[axis] * group.nominal[axis] + fiber->position[axis];
    }
    return Position<T>::of(xyz);
  }
  if constexpr (Role == kThreadInGroup) return Position<T>::of(fiber->position);
  if constexpr (Role == kGroupInGrid) return Position<T>::of(group.position);
  if constexpr (Role == kThreadsPerGrid) return Position<T>::of(group.grid);
  if constexpr (Role == kThreadsPerGroup) return Position<T>::of(group.size);
  if constexpr (Role == kNominalThreadsPerGroup) return Position<T>::of(group.nominal);
  if constexpr (Role == kGroupsPerGrid) return Position<T>::of(group.groups);
  if constexpr (Role == kIndexInGroup) return T(fiber->thread);
  if constexpr (Role == kIndexInSimd) return T(fiber->lane);
  if constexpr (Role == kSimdInGroup) return T(fiber->thread / kSimdWidth);
  if constexpr (Role == kThreadsPerSimd) return T(kSimdWidth);
  if constexpr (Role == kSimdsPerGroup) return T(parts_of(group.size));
  if constexpr (Role == kIndexInQuad) return T(fiber->thread % 4);
  if constexpr (Role == kQuadInGroup) return T(fiber->thread / 4);
  if constexpr (Role == kQuadsPerGroup) return T(parts_of(group.size, 4));
  if constexpr (Role == kNominalQuadsPerGroup) return T(parts_of(group.nominal, 4));
  if constexpr (Role == kNominalSimdsPerGroup) return T(parts_of(group.nominal));
}

template <class Parameter, int Role>
MENAGERIE_INSIDE Parameter bind(const Fiber* fiber) {
  if constexpr (Role == kAbsent && metal::is_reference_v<Parameter>) {
    return *reinterpret_cast<metal::remove_reference_t<Parameter>*>(Address(fiber));
  } else if constexpr (Role == kAbsent) {
    return nullptr;
  } else if constexpr (Role < 0) {
    return position<metal::remove_cv_t<Parameter>, Role>(fiber);
  } else {
    void* memory = fiber->group->arguments[Role];
    if constexpr (metal::is_reference_v<Parameter>) {
      return *static_cast<metal::remove_reference_t<Parameter>*>(memory);
    } else {
      static_assert(metal::is_pointer_v<Parameter>, "a buffer is a pointer or a reference");
      return static_cast<Parameter>(memory);
    }
  }
}

template <int... Roles>
struct Caller {
  template <class... Parameters>
  static MENAGERIE_INSIDE void run(Fiber* fiber, void (*kernel)(Parameters...)) {
    while (take_thread(fiber)) kernel(bind<Parameters, Roles>(fiber)...);
  }
};

}  // namespace menagerie::emulated

// Words of Metal that say where memory lies. Declarations of threadgroup variables have been
// rewritten by the device; everywhere else the address tells.
#define kernel
#define device
#define thread
#define threadgroup
#define constant const
#endif  // MENAGERIE_LANGUAGE, of language.h
