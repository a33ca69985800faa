// Metal's scalar types, type traits and limits (Metal Shading Language Specification, 2.1 and 6.5).
#pragma once

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using half = _Float16;
using bfloat = __bf16;
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = uchar;
using uint16_t = ushort;
using uint32_t = uint;
using uint64_t = ulong;
using size_t = ulong;
using ptrdiff_t = long;
using uintptr_t = ulong;

#define METAL_FUNC inline __attribute__((always_inline))
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define MAXFLOAT __FLT_MAX__
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_MAX_EXP 128
#define FLT_MIN_EXP (-125)
#define FLT_MAX_10_EXP 38
#define FLT_MIN_10_EXP (-37)
#define FLT_RADIX 2
#define HUGE_VALH half(__builtin_inff())
#define MAXHALF half(65504.0f)
#define HALF_MAX half(65504.0f)
#define HALF_MIN half(6.103515625e-5f)
#define HALF_EPSILON half(9.765625e-4f)
#define CHAR_BIT 8
#define SCHAR_MAX __SCHAR_MAX__
#define SCHAR_MIN (-__SCHAR_MAX__ - 1)
#define CHAR_MAX SCHAR_MAX
#define CHAR_MIN SCHAR_MIN
#define UCHAR_MAX 255
#define SHRT_MAX __SHRT_MAX__
#define SHRT_MIN (-__SHRT_MAX__ - 1)
#define USHRT_MAX 65535
#define INT_MAX __INT_MAX__
#define INT_MIN (-__INT_MAX__ - 1)
#define UINT_MAX (~0U)
#define LONG_MAX __LONG_MAX__
#define LONG_MIN (-__LONG_MAX__ - 1L)
#define ULONG_MAX (~0UL)
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f
#define M_E_H half(M_E_F)
#define M_LOG2E_H half(M_LOG2E_F)
#define M_LOG10E_H half(M_LOG10E_F)
#define M_LN2_H half(M_LN2_F)
#define M_LN10_H half(M_LN10_F)
#define M_PI_H half(M_PI_F)
#define M_PI_2_H half(M_PI_2_F)
#define M_PI_4_H half(M_PI_4_F)
#define M_1_PI_H half(M_1_PI_F)
#define M_2_PI_H half(M_2_PI_F)
#define M_2_SQRTPI_H half(M_2_SQRTPI_F)
#define M_SQRT2_H half(M_SQRT2_F)
#define M_SQRT1_2_H half(M_SQRT1_2_F)

namespace metal {

using ::bfloat;
using ::half;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::ptrdiff_t;
using ::size_t;
using ::uchar;
using ::uint;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::ulong;
using ::ushort;

template <class T, T Value>
struct integral_constant {
  static constexpr T value = Value;
  using value_type = T;
  using type = integral_constant;
  constexpr operator T() const { return Value; }
};
template <bool Value>
using bool_constant = integral_constant<bool, Value>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool Condition, class T = void>
using enable_if_t = typename enable_if<Condition, T>::type;

template <bool, class Yes, class No>
struct conditional {
  using type = Yes;
};
template <class Yes, class No>
struct conditional<false, Yes, No> {
  using type = No;
};
template <bool Condition, class Yes, class No>
using conditional_t = typename conditional<Condition, Yes, No>::type;

#define MENAGERIE_TRANSFORMATION(name, builtin) \
  template <class T>                            \
  struct name {                                 \
    using type = builtin(T);                    \
  };                                            \
  template <class T>                            \
  using name##_t = typename name<T>::type;
MENAGERIE_TRANSFORMATION(remove_cv, __remove_cv)
MENAGERIE_TRANSFORMATION(remove_reference, __remove_reference_t)
MENAGERIE_TRANSFORMATION(remove_all_extents, __remove_all_extents)
MENAGERIE_TRANSFORMATION(decay, __decay)
MENAGERIE_TRANSFORMATION(make_unsigned, __make_unsigned)
#undef MENAGERIE_TRANSFORMATION

template <class T>
struct remove_addrspace {
  using type = T;
};
#ifdef MENAGERIE_LANGUAGE
template <class T>
struct remove_addrspace<__attribute__((address_space(1))) T> : remove_addrspace<T> {};
template <class T>
struct remove_addrspace<__attribute__((address_space(2))) T> : remove_addrspace<T> {};
template <class T>
struct remove_addrspace<__attribute__((address_space(3))) T> : remove_addrspace<T> {};
#endif
template <class T>
using remove_addrspace_t = typename remove_addrspace<T>::type;

template <class T>
T&& declval();
template <class T>
constexpr remove_reference_t<T>&& move(T&& value) {
  return static_cast<remove_reference_t<T>&&>(value);
}

#define MENAGERIE_TRAIT(name, ...)              \
  template <class T>                            \
  inline constexpr bool name##_v = __VA_ARGS__; \
  template <class T>                            \
  struct name : bool_constant<name##_v<T>> {};
template <class A, class B>
inline constexpr bool is_same_v = __is_same(A, B);
template <class A, class B>
struct is_same : bool_constant<is_same_v<A, B>> {};
MENAGERIE_TRAIT(is_floating_point, is_same_v<remove_cv_t<T>, float> ||
                                       is_same_v<remove_cv_t<T>, half> ||
                                       is_same_v<remove_cv_t<T>, bfloat>)
MENAGERIE_TRAIT(is_integral, __is_integral(T))
MENAGERIE_TRAIT(is_arithmetic, is_integral_v<T> || is_floating_point_v<T>)
MENAGERIE_TRAIT(is_scalar, is_arithmetic_v<T> || __is_enum(T) || __is_pointer(T))
MENAGERIE_TRAIT(is_signed, __is_signed(T) || is_floating_point_v<T>)
MENAGERIE_TRAIT(is_pointer, __is_pointer(T))
MENAGERIE_TRAIT(is_reference, __is_reference(T))
MENAGERIE_TRAIT(is_class, __is_class(T))
MENAGERIE_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
#undef MENAGERIE_TRAIT
template <class From, class To>
inline constexpr bool is_convertible_v = __is_convertible(From, To);

template <class T>
struct numeric_limits {
  static constexpr bool is_signed = metal::is_signed_v<T>;
  static constexpr bool is_integer = true;
  static constexpr bool has_infinity = false;
  static constexpr bool has_quiet_NaN = false;
  static constexpr int digits = is_same_v<T, bool> ? 1 : sizeof(T) * 8 - (is_signed ? 1 : 0);
  static constexpr int digits10 = digits * 30103L / 100000;
  static constexpr T max() { return is_same_v<T, bool> ? T(1) : T(~0UL >> (64 - digits)); }
  static constexpr T min() { return is_signed ? T(-max() - 1) : T(0); }
  static constexpr T lowest() { return min(); }
  static constexpr T epsilon() { return T(0); }
  static constexpr T infinity() { return T(0); }
  static constexpr T quiet_NaN() { return T(0); }
};

template <class T, int Digits>
struct floating_limits {
  static constexpr bool is_signed = true;
  static constexpr bool is_integer = false;
  static constexpr bool has_infinity = true;
  static constexpr bool has_quiet_NaN = true;
  static constexpr int digits = Digits;
  static constexpr int digits10 = (Digits - 1) * 30103L / 100000;
  static constexpr T denorm_min() {
    return T(0x1p-149f * (Digits == 24 ? 1 : Digits == 11 ? 0x1p125f : 0x1p16f));
  }
  static constexpr T signaling_NaN() { return T(__builtin_nansf("")); }
  static constexpr T infinity() { return T(__builtin_inff()); }
  static constexpr T quiet_NaN() { return T(__builtin_nanf("")); }
};
template <>
struct numeric_limits<float> : floating_limits<float, 24> {
  static constexpr float max() { return __FLT_MAX__; }
  static constexpr float min() { return __FLT_MIN__; }
  static constexpr float lowest() { return -__FLT_MAX__; }
  static constexpr float epsilon() { return __FLT_EPSILON__; }
};
template <>
struct numeric_limits<half> : floating_limits<half, 11> {
  static constexpr half max() { return half(65504.0f); }
  static constexpr half min() { return half(0x1p-14f); }
  static constexpr half lowest() { return half(-65504.0f); }
  static constexpr half epsilon() { return half(0x1p-10f); }
};
template <>
struct numeric_limits<bfloat> : floating_limits<bfloat, 8> {
  static constexpr bfloat max() { return bfloat(0x1.FEp127f); }
  static constexpr bfloat min() { return bfloat(0x1p-126f); }
  static constexpr bfloat lowest() { return bfloat(-0x1.FEp127f); }
  static constexpr bfloat epsilon() { return bfloat(0x1p-7f); }
};
template <class T>
struct numeric_limits<const T> : numeric_limits<T> {};

template <class T, size_t N>
struct array {
  T elements[N];
  constexpr T& operator[](size_t i) { return elements[i]; }
  constexpr const T& operator[](size_t i) const { return elements[i]; }
  static constexpr size_t size() { return N; }
  constexpr T* begin() { return elements; }
  constexpr T* end() { return elements + N; }
};

enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8,
  mem_object_data = 16,
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }

// The same value in all threads.
template <class T>
struct uniform {
  T value;
  constexpr uniform(T all) : value(all) {}
  constexpr operator T() const { return value; }
};
template <class T>
constexpr uniform<T> make_uniform(T value) {
  return value;
}

}  // namespace metal

template <class To, class From>
constexpr To as_type(From value) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  return __builtin_bit_cast(To, value);
}

// What vectors and matrices are called, whatever `vec` and `matrix` are.
#define MENAGERIE_VECTORS(T)                     \
  using T##2 = metal::vec<T, 2>;                 \
  using T##3 = metal::vec<T, 3>;                 \
  using T##4 = metal::vec<T, 4>;                 \
  using packed_##T##2 = metal::packed_vec<T, 2>; \
  using packed_##T##3 = metal::packed_vec<T, 3>; \
  using packed_##T##4 = metal::packed_vec<T, 4>; \
  namespace metal {                              \
  using ::T##2;                                  \
  using ::T##3;                                  \
  using ::T##4;                                  \
  using ::packed_##T##2;                         \
  using ::packed_##T##3;                         \
  using ::packed_##T##4;                         \
  }
#define MENAGERIE_MATRIX_ROWS(T, C)        \
  using T##C##x2 = metal::matrix<T, C, 2>; \
  using T##C##x3 = metal::matrix<T, C, 3>; \
  using T##C##x4 = metal::matrix<T, C, 4>;
#define MENAGERIE_MATRICES(T) \
  MENAGERIE_MATRIX_ROWS(T, 2) MENAGERIE_MATRIX_ROWS(T, 3) MENAGERIE_MATRIX_ROWS(T, 4)
#define MENAGERIE_FLOATS(DO) DO(float) DO(half) DO(bfloat)
#define MENAGERIE_SHORTS(DO) DO(char) DO(uchar) DO(short) DO(ushort) DO(int) DO(uint)
#define MENAGERIE_INTEGERS(DO) MENAGERIE_SHORTS(DO) DO(long) DO(ulong)
