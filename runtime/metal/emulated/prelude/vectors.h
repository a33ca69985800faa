// Metal's vectors as classes: clang's own vector types know no float3(a, b, c) in C++ (Metal
// Shading Language Specification, 2.2). A vector of three has the size and alignment of four.
#pragma once

namespace metal {

template <class T, uint N>
struct vec;

// Some components of a vector, as a value and as a target.
template <class T, uint N, uint... Components>
struct Swizzle {
  T elements[N];
  constexpr operator vec<T, sizeof...(Components)>() const { return {elements[Components]...}; }
  constexpr Swizzle& operator=(const vec<T, sizeof...(Components)>& value) {
    uint i = 0;
    ((elements[Components] = value[i++]), ...);
    return *this;
  }
};

template <class T>
concept Scalar = is_arithmetic_v<T>;

template <class T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  union {
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
    T elements[2];
    Swizzle<T, 2, 0, 0> xx;
    Swizzle<T, 2, 0, 1> xy;
    Swizzle<T, 2, 1, 0> yx;
    Swizzle<T, 2, 1, 1> yy;
  };
  vec() = default;
  template <Scalar S>
  constexpr vec(S all) : x(T(all)), y(T(all)) {}
  constexpr vec(T a, T b) : x(a), y(b) {}
  template <class U>
  explicit constexpr vec(const vec<U, 2>& other) : x(T(other.x)), y(T(other.y)) {}
  constexpr T& operator[](uint i) { return elements[i]; }
  constexpr const T& operator[](uint i) const { return elements[i]; }
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  union {
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
    T elements[3];
    Swizzle<T, 3, 0, 1> xy;
    Swizzle<T, 3, 1, 0> yx;
    Swizzle<T, 3, 0, 2> xz;
    Swizzle<T, 3, 1, 2> yz;
    Swizzle<T, 3, 0, 1, 2> xyz;
    Swizzle<T, 3, 2, 1, 0> zyx;
  };
  vec() = default;
  template <Scalar S>
  constexpr vec(S all) : x(T(all)), y(T(all)), z(T(all)) {}
  constexpr vec(T a, T b, T c) : x(a), y(b), z(c) {}
  constexpr vec(const vec<T, 2>& a, T c) : x(a.x), y(a.y), z(c) {}
  constexpr vec(T a, const vec<T, 2>& b) : x(a), y(b.x), z(b.y) {}
  template <class U>
  explicit constexpr vec(const vec<U, 3>& o) : x(T(o.x)), y(T(o.y)), z(T(o.z)) {}
  constexpr T& operator[](uint i) { return elements[i]; }
  constexpr const T& operator[](uint i) const { return elements[i]; }
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  union {
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
    T elements[4];
    Swizzle<T, 4, 0, 1> xy;
    Swizzle<T, 4, 1, 0> yx;
    Swizzle<T, 4, 0, 2> xz;
    Swizzle<T, 4, 1, 2> yz;
    Swizzle<T, 4, 1, 3> yw;
    Swizzle<T, 4, 2, 3> zw;
    Swizzle<T, 4, 3, 2> wz;
    Swizzle<T, 4, 0, 1, 2> xyz;
    Swizzle<T, 4, 1, 2, 3> yzw;
    Swizzle<T, 4, 0, 1, 2, 3> xyzw;
    Swizzle<T, 4, 3, 2, 1, 0> wzyx;
  };
  vec() = default;
  template <Scalar S>
  constexpr vec(S all) : x(T(all)), y(T(all)), z(T(all)), w(T(all)) {}
  constexpr vec(T a0, T a1, T a2, T a3) : x(a0), y(a1), z(a2), w(a3) {}
  constexpr vec(const vec<T, 3>& v, T s) : x(v.x), y(v.y), z(v.z), w(s) {}
  constexpr vec(T s, const vec<T, 3>& v) : x(s), y(v.x), z(v.y), w(v.z) {}
  constexpr vec(const vec<T, 2>& v, const vec<T, 2>& u) : x(v.x), y(v.y), z(u.x), w(u.y) {}
  constexpr vec(const vec<T, 2>& v, T a2, T a3) : x(v.x), y(v.y), z(a2), w(a3) {}
  template <class U>
  explicit constexpr vec(const vec<U, 4>& o) : x(T(o.x)), y(T(o.y)), z(T(o.z)), w(T(o.w)) {}
  constexpr T& operator[](uint i) { return elements[i]; }
  constexpr const T& operator[](uint i) const { return elements[i]; }
};

// Element by element; the result has the type of function(element).
template <class T, uint N, class Function>
constexpr auto map(const vec<T, N>& a, Function function) {
  vec<decltype(function(a[0])), N> result;
  for (uint i = 0; i < N; ++i) result[i] = function(a[i]);
  return result;
}
template <class T, uint N, class Function>
constexpr auto map(const vec<T, N>& a, const vec<T, N>& b, Function function) {
  vec<decltype(function(a[0], b[0])), N> result;
  for (uint i = 0; i < N; ++i) result[i] = function(a[i], b[i]);
  return result;
}

#define MENAGERIE_OPERATOR(op, Result)                                           \
  template <class T, uint N>                                                     \
  constexpr vec<Result, N> operator op(const vec<T, N>& a, const vec<T, N>& b) { \
    return map(a, b, [](T x, T y) { return Result(x op y); });                   \
  }                                                                              \
  template <class T, uint N, Scalar S>                                           \
  constexpr vec<Result, N> operator op(const vec<T, N>& a, S b) {                \
    return a op vec<T, N>(b);                                                    \
  }                                                                              \
  template <class T, uint N, Scalar S>                                           \
  constexpr vec<Result, N> operator op(S a, const vec<T, N>& b) {                \
    return vec<T, N>(a) op b;                                                    \
  }
#define MENAGERIE_ARITHMETIC(op)                                     \
  MENAGERIE_OPERATOR(op, T)                                          \
  template <class T, uint N, class B>                                \
  constexpr vec<T, N>& operator op## = (vec<T, N> & a, const B& b) { \
    return a = a op b;                                               \
  }
MENAGERIE_ARITHMETIC(+)
MENAGERIE_ARITHMETIC(-)
MENAGERIE_ARITHMETIC(*)
MENAGERIE_ARITHMETIC(/)
MENAGERIE_ARITHMETIC(%)
MENAGERIE_ARITHMETIC(&)
MENAGERIE_ARITHMETIC(|)
MENAGERIE_ARITHMETIC(^)
MENAGERIE_ARITHMETIC(<<)
MENAGERIE_ARITHMETIC(>>)
MENAGERIE_OPERATOR(==, bool)
MENAGERIE_OPERATOR(!=, bool)
MENAGERIE_OPERATOR(<, bool)
MENAGERIE_OPERATOR(<=, bool)
MENAGERIE_OPERATOR(>, bool)
MENAGERIE_OPERATOR(>=, bool)
MENAGERIE_OPERATOR(&&, bool)
MENAGERIE_OPERATOR(||, bool)
#undef MENAGERIE_ARITHMETIC
#undef MENAGERIE_OPERATOR

template <class T, uint N>
constexpr vec<T, N> operator-(const vec<T, N>& a) {
  return map(a, [](T x) { return T(-x); });
}
template <class T, uint N>
constexpr vec<T, N> operator~(const vec<T, N>& a) {
  return map(a, [](T x) { return T(~x); });
}
template <class T, uint N>
constexpr vec<bool, N> operator!(const vec<T, N>& a) {
  return map(a, [](T x) { return !x; });
}
template <uint N>
constexpr bool all(const vec<bool, N>& a) {
  bool result = true;
  for (uint i = 0; i < N; ++i) result &= a[i];
  return result;
}
template <uint N>
constexpr bool any(const vec<bool, N>& a) {
  return !all(!a);
}

// Its elements lie one after another, aligned as one of them.
template <class T, uint N>
struct packed_vec {
  T elements[N];
  packed_vec() = default;
  template <Scalar S>
  constexpr packed_vec(S all) : packed_vec(vec<T, N>(all)) {}
  constexpr packed_vec(const vec<T, N>& v) {
    for (uint i = 0; i < N; ++i) elements[i] = v[i];
  }
  constexpr operator vec<T, N>() const {
    vec<T, N> result;
    for (uint i = 0; i < N; ++i) result[i] = elements[i];
    return result;
  }
  constexpr T& operator[](uint i) { return elements[i]; }
  constexpr const T& operator[](uint i) const { return elements[i]; }
};

// Columns of a small matrix; a number stands for the diagonal.
template <class T, int Columns, int Rows>
struct matrix {
  vec<T, Rows> columns[Columns];
  matrix() = default;
  explicit constexpr matrix(T value) {
    for (int c = 0; c < Columns; ++c) {
      columns[c] = vec<T, Rows>(0);
      if (c < Rows) columns[c][c] = value;
    }
  }
  constexpr vec<T, Rows>& operator[](int i) { return columns[i]; }
  constexpr const vec<T, Rows>& operator[](int i) const { return columns[i]; }
};
template <class T, int Columns, int Rows>
constexpr vec<T, Rows> operator*(const matrix<T, Columns, Rows>& a, const vec<T, Columns>& b) {
  vec<T, Rows> sum = a[0] * b[0];
  for (int i = 1; i < Columns; ++i) sum = sum + a[i] * b[i];
  return sum;
}
template <class T, int K, int Columns, int Rows>
constexpr matrix<T, Columns, Rows> operator*(const matrix<T, K, Rows>& a,
                                             const matrix<T, Columns, K>& b) {
  matrix<T, Columns, Rows> result;
  for (int i = 0; i < Columns; ++i) result[i] = a * b[i];
  return result;
}

}  // namespace metal

MENAGERIE_FLOATS(MENAGERIE_VECTORS)
MENAGERIE_INTEGERS(MENAGERIE_VECTORS)
MENAGERIE_VECTORS(bool)
MENAGERIE_MATRICES(float)
MENAGERIE_MATRICES(half)
