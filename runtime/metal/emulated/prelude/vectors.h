// Metal's vectors as classes: clang's own vector types know no float3(a, b, c) in C++ (Metal
// Shading Language Specification, 2.2). A vector of three has the size and alignment of four.
#pragma once

namespace metal {

template <class T, uint N>
struct vec;
template <class T, uint N>
struct packed_vec;

namespace own {  // what Metal has not: a kernel may have such names, too

template <class T>
concept Scalar = is_arithmetic_v<T>;

// Numbers in a row, and what the first of them are called.
template <class T, uint N>
struct Components;
template <class T>
struct Components<T, 2> {
  union {
    T elements[2];
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
  };
};
template <class T>
struct Components<T, 3> {
  union {
    T elements[3];
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
  };
};
template <class T>
struct Components<T, 4> {
  union {
    T elements[4];
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
  };
};

// The translation writes v.swizzle(Places<1, 0>()) for v.yx, and v.chosen(...) where it is
// assigned.
template <uint...>
struct Places {};
template <class T, uint... Place>
struct Chosen {
  T* elements;
  constexpr void operator=(vec<T, sizeof...(Place)> value) {  // not by reference to itself
    uint i = 0;
    ((elements[Place] = value[i++]), ...);
  }
#define MENAGERIE_ASSIGNED(op)                                 \
  template <class B>                                           \
  constexpr void operator op## = (const B& b) {                \
    *this = vec<T, sizeof...(Place)>(elements[Place]...) op b; \
  }
  MENAGERIE_ASSIGNED(+)
  MENAGERIE_ASSIGNED(-)
  MENAGERIE_ASSIGNED(*)
  MENAGERIE_ASSIGNED(/)
  MENAGERIE_ASSIGNED(%)
  MENAGERIE_ASSIGNED(&)
  MENAGERIE_ASSIGNED(|)
  MENAGERIE_ASSIGNED(^)
  MENAGERIE_ASSIGNED(<<)
  MENAGERIE_ASSIGNED(>>)
#undef MENAGERIE_ASSIGNED
};

template <class T, uint N>
struct Indexed : Components<T, N> {
  constexpr T& operator[](uint i) { return this->elements[i]; }
  constexpr const T& operator[](uint i) const { return this->elements[i]; }
  template <uint... Place>
  constexpr vec<T, sizeof...(Place)> swizzle(Places<Place...>) const {
    return {this->elements[Place]...};
  }
  template <uint... Place>
  constexpr Chosen<T, Place...> chosen(Places<Place...>) {
    return {this->elements};
  }
};

template <class A>
inline constexpr uint kWidth = 0;  // of a vector
template <class T, uint N>
inline constexpr uint kWidth<vec<T, N>> = N;
template <class T, uint N>
inline constexpr uint kWidth<packed_vec<T, N>> = N;
template <class A>
inline constexpr uint kParts = kWidth<A> == 0 ? 1 : kWidth<A>;
template <class A>
concept Vector = kWidth<A> != 0;

}  // namespace own

template <class T, uint N>
struct alignas((N == 2 ? 2 : 4) * sizeof(T)) vec : own::Indexed<T, N> {
  typedef T element;
  vec() = default;
  template <own::Scalar S>
  constexpr vec(S all) {
    for (uint i = 0; i < N; ++i) this->elements[i] = T(all);
  }
  template <class A, class B, class... More>
    requires(own::kParts<A> + own::kParts<B> + (own::kParts<More> + ... + 0) == N)
  constexpr vec(const A& a, const B& b, const More&... more) {
    uint at = 0;
    append(at, a), append(at, b), (append(at, more), ...);
  }
  template <class U>
  explicit constexpr vec(const vec<U, N>& other) {
    for (uint i = 0; i < N; ++i) this->elements[i] = T(other[i]);
  }

 private:
  template <class A>
  constexpr void append(uint& at, const A& part) {
    if constexpr (own::Vector<A>) {
      for (uint i = 0; i < own::kWidth<A>; ++i) this->elements[at++] = T(part[i]);
    } else {
      this->elements[at++] = T(part);
    }
  }
};

// Its elements lie one after another, aligned as one of them.
template <class T, uint N>
struct packed_vec : own::Indexed<T, N> {
  typedef T element;
  packed_vec() = default;
  template <class... A>
    requires requires(A... a) { vec<T, N>(a...); }
  constexpr packed_vec(const A&... a) {
    const vec<T, N> v(a...);
    for (uint i = 0; i < N; ++i) this->elements[i] = v[i];
  }
  constexpr operator vec<T, N>() const {
    vec<T, N> result;
    for (uint i = 0; i < N; ++i) result[i] = this->elements[i];
    return result;
  }
};

namespace own {

// Of vectors, and of numbers, which stand for a vector of equal ones; the first vector's type.
template <class First, class... More>
struct First_ {
  typedef conditional_t<Vector<First>, First, typename First_<More...>::type> type;
};
template <class Last>
struct First_<Last> {
  typedef Last type;
};
template <class... A>
using FirstVector = typename First_<A...>::type;
template <class... A>
concept Lifted = ((Scalar<A> || Vector<A>) && ...) && (Vector<A> || ...);
template <class T, class A>
constexpr auto part(const A& a, uint i) {
  if constexpr (Vector<A>) {
    return a[i];
  } else {
    return T(a);
  }
}

// Element by element; the result has the type of function(elements).
template <class Function, class... A>
constexpr auto lifted(Function function, const A&... a) {
  typedef FirstVector<A...> First;
  typedef typename First::element T;
  vec<decltype(function(part<T>(a, 0)...)), kWidth<First>> result;
  for (uint i = 0; i < kWidth<First>; ++i) result[i] = function(part<T>(a, i)...);
  return result;
}

template <class T>
struct Same_ {
  typedef T type;
};
template <class T>
using Same = typename Same_<T>::type;  // not deduced from

}  // namespace own

#define MENAGERIE_OPERATOR(op, Result)                                       \
  template <class A, class B>                                                \
    requires own::Lifted<A, B>                                               \
  constexpr auto operator op(const A& a, const B& b) {                       \
    typedef typename own::FirstVector<A, B>::element T;                      \
    return own::lifted([](auto x, auto y) { return Result(x op y); }, a, b); \
  }
#define MENAGERIE_ARITHMETIC(op)                     \
  MENAGERIE_OPERATOR(op, T)                          \
  template <own::Vector A, class B>                  \
  constexpr A& operator op## = (A & a, const B& b) { \
    return a = A(a op b);                            \
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

template <own::Vector A>
constexpr auto operator-(const A& a) {
  return own::lifted([](auto x) { return typename A::element(-x); }, a);
}
template <own::Vector A>
constexpr auto operator~(const A& a) {
  return own::lifted([](auto x) { return typename A::element(~x); }, a);
}
template <own::Vector A>
constexpr auto operator!(const A& a) {
  return own::lifted([](auto x) { return !x; }, a);
}
template <own::Vector A>
constexpr A& operator++(A& a) {
  return a += 1;
}
template <own::Vector A>
constexpr A& operator--(A& a) {
  return a -= 1;
}
template <own::Vector A>
constexpr A operator++(A& a, int) {
  const A before = a;
  return a += 1, before;
}
template <own::Vector A>
constexpr A operator--(A& a, int) {
  const A before = a;
  return a -= 1, before;
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
  template <class... Parts>
    requires(sizeof...(Parts) == Columns && ((own::kParts<Parts> == Rows) && ...))
  constexpr matrix(const Parts&... parts) : columns{parts...} {}
  template <class... Numbers>
    requires(sizeof...(Numbers) == Columns * Rows && (own::Scalar<Numbers> && ...))
  constexpr matrix(Numbers... numbers) {
    int i = 0;
    ((columns[i / Rows][i % Rows] = T(numbers), ++i), ...);
  }
  constexpr vec<T, Rows>& operator[](int i) { return columns[i]; }
  constexpr const vec<T, Rows>& operator[](int i) const { return columns[i]; }
};
template <class T, int Columns, int Rows>
constexpr vec<T, Rows> operator*(const matrix<T, Columns, Rows>& a,
                                 const vec<T, uint(Columns)>& b) {
  vec<T, Rows> sum = a[0] * b[0];
  for (int i = 1; i < Columns; ++i) sum = sum + a[i] * b[i];
  return sum;
}
template <class T, int Columns, int Rows>
constexpr matrix<T, Rows, Columns> transpose(const matrix<T, Columns, Rows>& a) {
  matrix<T, Rows, Columns> result;
  for (int i = 0; i < Columns * Rows; ++i) result[i % Rows][i / Rows] = a[i / Rows][i % Rows];
  return result;
}
template <class T, int Columns, int Rows>
constexpr vec<T, Columns> operator*(const vec<T, uint(Rows)>& a,
                                    const matrix<T, Columns, Rows>& b) {
  return transpose(b) * a;
}
template <class T, int K, int Columns, int Rows>
constexpr matrix<T, Columns, Rows> operator*(const matrix<T, K, Rows>& a,
                                             const matrix<T, Columns, K>& b) {
  matrix<T, Columns, Rows> result;
  for (int i = 0; i < Columns; ++i) result[i] = a * b[i];
  return result;
}
#define MENAGERIE_BY_COLUMNS(op, A, B, a, b)                        \
  template <class T, int Columns, int Rows>                         \
  constexpr matrix<T, Columns, Rows> operator op(A left, B right) { \
    matrix<T, Columns, Rows> result;                                \
    for (int i = 0; i < Columns; ++i) result[i] = a op b;           \
    return result;                                                  \
  }
#define MENAGERIE_MATRIX const matrix<T, Columns, Rows>&
MENAGERIE_BY_COLUMNS(+, MENAGERIE_MATRIX, MENAGERIE_MATRIX, left[i], right[i])
MENAGERIE_BY_COLUMNS(-, MENAGERIE_MATRIX, MENAGERIE_MATRIX, left[i], right[i])
MENAGERIE_BY_COLUMNS(*, MENAGERIE_MATRIX, own::Same<T>, left[i], right)
MENAGERIE_BY_COLUMNS(*, own::Same<T>, MENAGERIE_MATRIX, left, right[i])
#undef MENAGERIE_MATRIX
#undef MENAGERIE_BY_COLUMNS
// By its first row's minors.
template <class T, int N>
constexpr T determinant(const matrix<T, N, N>& a) {
  if constexpr (N == 2) {
    return a[0][0] * a[1][1] - a[1][0] * a[0][1];
  } else {
    T sum = 0;
    for (int c = 0; c < N; ++c) {
      matrix<T, N - 1, N - 1> minor;
      for (int i = 0; i < N - 1; ++i) {
        for (int r = 1; r < N; ++r) minor[i][r - 1] = a[i + (i >= c ? 1 : 0)][r];
      }
      sum += (c % 2 == 0 ? a[c][0] : -a[c][0]) * determinant(minor);
    }
    return sum;
  }
}

}  // namespace metal

MENAGERIE_FLOATS(MENAGERIE_VECTORS)
MENAGERIE_INTEGERS(MENAGERIE_VECTORS)
MENAGERIE_VECTORS(bool)
MENAGERIE_MATRICES(float)
MENAGERIE_MATRICES(half)
