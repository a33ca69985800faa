// Atomic functions (Metal Shading Language Specification, 6.15). Metal has relaxed order only.
#pragma once

namespace metal {

enum memory_order : int {
  memory_order_relaxed,
  memory_order_acquire,
  memory_order_release,
  memory_order_acq_rel,
  memory_order_seq_cst,
};

template <class T>
struct atomic {
  T value;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_bool = atomic<bool>;
using atomic_float = atomic<float>;
using atomic_ulong = atomic<ulong>;

namespace own {
template <bool Write, class T>
MENAGERIE_INSIDE void check_atomic(const volatile atomic<T>* object) {
  menagerie::emulated::check<Write>(reinterpret_cast<ulong>(object), sizeof(T), sizeof(T), true);
}
}  // namespace own

template <class T>
MENAGERIE_UNCHECKED inline T atomic_load_explicit(const volatile atomic<T>* object, memory_order) {
  own::check_atomic<false>(object);
  T value;
  __atomic_load(&object->value, &value, __ATOMIC_RELAXED);
  return value;
}
template <class T>
MENAGERIE_UNCHECKED inline void atomic_store_explicit(volatile atomic<T>* object,
                                                      remove_cv_t<T> value, memory_order) {
  own::check_atomic<true>(object);
  __atomic_store(&object->value, &value, __ATOMIC_RELAXED);
}
template <class T>
MENAGERIE_UNCHECKED inline bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* object,
                                                                      T* expected,
                                                                      remove_cv_t<T> desired,
                                                                      memory_order, memory_order) {
  own::check_atomic<false>(object);
  own::check_atomic<true>(object);
  menagerie::emulated::check<true>(reinterpret_cast<ulong>(expected), sizeof(T), sizeof(T));
  return __atomic_compare_exchange(&object->value, expected, &desired, true, __ATOMIC_RELAXED,
                                   __ATOMIC_RELAXED);
}

namespace own {
template <class T, class Function>
MENAGERIE_UNCHECKED inline T atomic_update(volatile atomic<T>* object, Function function) {
  own::check_atomic<false>(object);
  own::check_atomic<true>(object);
  T old, next;
  __atomic_load(&object->value, &old, __ATOMIC_RELAXED);
  do {
    next = function(old);
  } while (!__atomic_compare_exchange(&object->value, &old, &next, true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED));
  return old;
}
}  // namespace own

#define MENAGERIE_UPDATE(name, ...)                                                           \
  template <class T>                                                                          \
  MENAGERIE_UNCHECKED inline T atomic_##name##_explicit(volatile atomic<T>* object,           \
                                                        remove_cv_t<T> value, memory_order) { \
    return own::atomic_update(object,                                                         \
                              [value](T old) MENAGERIE_UNCHECKED { return T(__VA_ARGS__); }); \
  }
MENAGERIE_UPDATE(exchange, value)
MENAGERIE_UPDATE(max, old < value ? value : old)
MENAGERIE_UPDATE(min, value < old ? value : old)
MENAGERIE_UPDATE(fetch_add, old + value)
MENAGERIE_UPDATE(fetch_sub, old - value)
MENAGERIE_UPDATE(fetch_and, old& value)
MENAGERIE_UPDATE(fetch_or, old | value)
MENAGERIE_UPDATE(fetch_xor, old ^ value)
MENAGERIE_UPDATE(fetch_max, old < value ? value : old)
MENAGERIE_UPDATE(fetch_min, value < old ? value : old)
#undef MENAGERIE_UPDATE

}  // namespace metal
