// Metal's library as declarations alone, with real address spaces and clang's own vectors: a shader
// is compiled against them first, to refuse what Apple's compiler refuses. What is between this
// #ifdef and the #else takes the place of all headers that follow (kernels.h has the #endif).
#ifdef MENAGERIE_LANGUAGE
#define kernel
#define thread
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))

namespace metal {

template <class T, uint N>
using vec = T __attribute__((ext_vector_type(N)));
template <class T, uint N>
using packed_vec = vec<T, N>;

// A vector from scalars and shorter vectors: clang's own have no such constructor, and the
// translation writes menagerie_vector<float4>(...) for float4(...).
template <class V, class... Parts>
constexpr V menagerie_vector(Parts...) {
  return V{};
}

}  // namespace metal

using metal::menagerie_vector;

MENAGERIE_FLOATS(MENAGERIE_VECTORS)
MENAGERIE_INTEGERS(MENAGERIE_VECTORS)
MENAGERIE_VECTORS(bool)

namespace metal {

#define MENAGERIE_WIDTHS(DO, T) DO(T, 1) DO(T, 2) DO(T, 3) DO(T, 4)
template <class T, uint N>
struct menagerie_wide {
  typedef vec<T, N> type;
};
template <class T>
struct menagerie_wide<T, 1> {
  typedef T type;
};
template <class T, uint N>
using Wide = typename menagerie_wide<T, N>::type;

// Overloads and no templates: a call with an int, or with a float and an int, is ambiguous.
#define MENAGERIE_EXACT(V) \
  V abs(V);                \
  V max(V, V);             \
  V min(V, V);             \
  V clamp(V, V, V);        \
  V max3(V, V, V);         \
  V min3(V, V, V);         \
  V median3(V, V, V);
#define MENAGERIE_EXACT_OF(T, N)             \
  MENAGERIE_EXACT(Wide<T MENAGERIE_COMMA N>) \
  constexpr Wide<T, N> select(Wide<T, N> no, Wide<T, N>, Wide<bool, N>) { return no; }
#define MENAGERIE_COMMA ,
#define MENAGERIE_FLOAT(T, N)                                                                     \
  MENAGERIE_EXACT_OF(T, N)                                                                        \
  Wide<T, N> acos(Wide<T, N>), acosh(Wide<T, N>), asin(Wide<T, N>), asinh(Wide<T, N>),            \
      atan(Wide<T, N>), atanh(Wide<T, N>), ceil(Wide<T, N>), cos(Wide<T, N>), cosh(Wide<T, N>),   \
      cospi(Wide<T, N>), exp(Wide<T, N>), exp10(Wide<T, N>), exp2(Wide<T, N>), fabs(Wide<T, N>),  \
      floor(Wide<T, N>), fract(Wide<T, N>), log(Wide<T, N>), log10(Wide<T, N>), log2(Wide<T, N>), \
      rint(Wide<T, N>), round(Wide<T, N>), rsqrt(Wide<T, N>), saturate(Wide<T, N>),               \
      sign(Wide<T, N>), sin(Wide<T, N>), sinh(Wide<T, N>), sinpi(Wide<T, N>), sqrt(Wide<T, N>),   \
      tan(Wide<T, N>), tanh(Wide<T, N>), tanpi(Wide<T, N>), trunc(Wide<T, N>),                    \
      atan2(Wide<T, N>, Wide<T, N>), copysign(Wide<T, N>, Wide<T, N>),                            \
      divide(Wide<T, N>, Wide<T, N>), fdim(Wide<T, N>, Wide<T, N>), fmax(Wide<T, N>, Wide<T, N>), \
      fmin(Wide<T, N>, Wide<T, N>), fmod(Wide<T, N>, Wide<T, N>), pow(Wide<T, N>, Wide<T, N>),    \
      powr(Wide<T, N>, Wide<T, N>), step(Wide<T, N>, Wide<T, N>),                                 \
      nextafter(Wide<T, N>, Wide<T, N>), fma(Wide<T, N>, Wide<T, N>, Wide<T, N>),                 \
      mix(Wide<T, N>, Wide<T, N>, Wide<T, N>), smoothstep(Wide<T, N>, Wide<T, N>, Wide<T, N>),    \
      fmax3(Wide<T, N>, Wide<T, N>, Wide<T, N>), fmin3(Wide<T, N>, Wide<T, N>, Wide<T, N>),       \
      fmedian3(Wide<T, N>, Wide<T, N>, Wide<T, N>), ldexp(Wide<T, N>, Wide<int, N>),              \
      frexp(Wide<T, N>, Wide<int, N>&), modf(Wide<T, N>, Wide<T, N>&),                            \
      sincos(Wide<T, N>, Wide<T, N>&);                                                            \
  Wide<int, N> ilogb(Wide<T, N>);                                                                 \
  Wide<bool, N> isnan(Wide<T, N>), isinf(Wide<T, N>), isfinite(Wide<T, N>), isnormal(Wide<T, N>), \
      signbit(Wide<T, N>), isunordered(Wide<T, N>, Wide<T, N>), isordered(Wide<T, N>, Wide<T, N>);
#define MENAGERIE_INTEGER(T, N)                                                                   \
  MENAGERIE_EXACT_OF(T, N)                                                                        \
  Wide<T, N> popcount(Wide<T, N>), clz(Wide<T, N>), ctz(Wide<T, N>), reverse_bits(Wide<T, N>),    \
      addsat(Wide<T, N>, Wide<T, N>), subsat(Wide<T, N>, Wide<T, N>),                             \
      hadd(Wide<T, N>, Wide<T, N>), rhadd(Wide<T, N>, Wide<T, N>), mulhi(Wide<T, N>, Wide<T, N>), \
      rotate(Wide<T, N>, Wide<T, N>);                                                             \
  Wide<make_unsigned_t<T>, N> absdiff(Wide<T, N>, Wide<T, N>);                                    \
  Wide<T, N> madhi(Wide<T, N>, Wide<T, N>, Wide<T, N>),                                           \
      madsat(Wide<T, N>, Wide<T, N>, Wide<T, N>), extract_bits(Wide<T, N>, uint, uint),           \
      insert_bits(Wide<T, N>, Wide<T, N>, uint, uint);
#define MENAGERIE_DO(T) MENAGERIE_WIDTHS(MENAGERIE_FLOAT, T)
MENAGERIE_FLOATS(MENAGERIE_DO)
#undef MENAGERIE_DO
#define MENAGERIE_DO(T) MENAGERIE_WIDTHS(MENAGERIE_INTEGER, T)
MENAGERIE_INTEGERS(MENAGERIE_DO)
#undef MENAGERIE_DO
#define MENAGERIE_OF_24_BITS(T, N) \
  Wide<T, N> mul24(Wide<T, N>, Wide<T, N>), mad24(Wide<T, N>, Wide<T, N>, Wide<T, N>);
MENAGERIE_WIDTHS(MENAGERIE_OF_24_BITS, int)
MENAGERIE_WIDTHS(MENAGERIE_OF_24_BITS, uint)
bool max(bool, bool);
bool min(bool, bool);
constexpr bool select(bool no, bool, bool) { return no; }
#define MENAGERIE_GEOMETRY(T, N)                                                  \
  T dot(Wide<T, N>, Wide<T, N>), length(Wide<T, N>), length_squared(Wide<T, N>),  \
      distance(Wide<T, N>, Wide<T, N>), distance_squared(Wide<T, N>, Wide<T, N>); \
  Wide<T, N> normalize(Wide<T, N>), reflect(Wide<T, N>, Wide<T, N>),              \
      faceforward(Wide<T, N>, Wide<T, N>, Wide<T, N>), refract(Wide<T, N>, Wide<T, N>, T);
#define MENAGERIE_DO(T)    \
  MENAGERIE_GEOMETRY(T, 2) \
  MENAGERIE_GEOMETRY(T, 3) MENAGERIE_GEOMETRY(T, 4) Wide<T, 3> cross(Wide<T, 3>, Wide<T, 3>);
MENAGERIE_FLOATS(MENAGERIE_DO)
#undef MENAGERIE_DO
// Comparisons of clang's vectors are vectors of integers, Metal's of bool.
template <class T, uint N>
bool all(vec<T, N>);
template <class T, uint N>
bool any(vec<T, N>);
template <class T, class I, uint N>
vec<T, N> select(vec<T, N>, vec<T, N>, vec<I, N>);
#define MENAGERIE_PACKINGS(T)                                        \
  T##4 unpack_unorm4x8_to_##T(uint), unpack_snorm4x8_to_##T(uint);   \
  T##2 unpack_unorm2x16_to_##T(uint), unpack_snorm2x16_to_##T(uint); \
  uint pack_##T##_to_unorm4x8(T##4), pack_##T##_to_snorm4x8(T##4);   \
  uint pack_##T##_to_unorm2x16(T##2), pack_##T##_to_snorm2x16(T##2);
MENAGERIE_PACKINGS(float)
MENAGERIE_PACKINGS(half)

void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
#define MENAGERIE_VOTES(group, Word)                                \
  class group##_vote {                                              \
   public:                                                          \
    typedef Word vote_t;                                            \
    explicit constexpr group##_vote(vote_t = 0) {}                  \
    explicit operator vote_t() const;                               \
    bool all() const;                                               \
    bool any() const;                                               \
  };                                                                \
  group##_vote group##_ballot(bool), group##_active_threads_mask(); \
  bool group##_any(bool), group##_all(bool), group##_is_first();
MENAGERIE_VOTES(simd, ulong)
MENAGERIE_VOTES(quad, uint)

// Of values of 8 to 32 bits: there are none of 64.
#define MENAGERIE_LANES_OF(group, V)                                                        \
  V group##_sum(V), group##_product(V), group##_max(V), group##_min(V),                     \
      group##_prefix_inclusive_sum(V), group##_prefix_exclusive_sum(V),                     \
      group##_prefix_inclusive_product(V), group##_prefix_exclusive_product(V),             \
      group##_shuffle(V, ushort), group##_broadcast(V, ushort), group##_broadcast_first(V), \
      group##_shuffle_xor(V, ushort), group##_shuffle_up(V, ushort),                        \
      group##_shuffle_down(V, ushort), group##_shuffle_rotate_up(V, ushort),                \
      group##_shuffle_rotate_down(V, ushort), group##_shuffle_and_fill_up(V, V, ushort),    \
      group##_shuffle_and_fill_down(V, V, ushort),                                          \
      group##_shuffle_and_fill_up(V, V, ushort, ushort),                                    \
      group##_shuffle_and_fill_down(V, V, ushort, ushort);
#define MENAGERIE_LANES(T, N)                         \
  MENAGERIE_LANES_OF(simd, Wide<T MENAGERIE_COMMA N>) \
  MENAGERIE_LANES_OF(quad, Wide<T MENAGERIE_COMMA N>)
#define MENAGERIE_DO(T) MENAGERIE_WIDTHS(MENAGERIE_LANES, T)
MENAGERIE_FLOATS(MENAGERIE_DO)
MENAGERIE_SHORTS(MENAGERIE_DO)
#undef MENAGERIE_DO
#define MENAGERIE_LANE_BITS(T, N)                                             \
  Wide<T, N> simd_and(Wide<T, N>), simd_or(Wide<T, N>), simd_xor(Wide<T, N>), \
      quad_and(Wide<T, N>), quad_or(Wide<T, N>), quad_xor(Wide<T, N>);
#define MENAGERIE_DO(T) MENAGERIE_WIDTHS(MENAGERIE_LANE_BITS, T)
MENAGERIE_SHORTS(MENAGERIE_DO)
#undef MENAGERIE_DO

enum memory_order : int { memory_order_relaxed };
template <class T>
struct atomic {
  static_assert(is_same_v<T, int> || is_same_v<T, uint> || is_same_v<T, bool> ||
                    is_same_v<T, float> || is_same_v<T, ulong>,
                "Metal has atomics of int, uint, bool, float and ulong");
  T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;
typedef atomic<ulong> atomic_ulong;
namespace own {
// Which types know an operation (6.15.4.5 of the specification).
template <class T>
using Whole = enable_if_t<is_same_v<T, int> || is_same_v<T, uint>, T>;
template <class T>
using Loaded = enable_if_t<!is_same_v<T, ulong>, T>;
template <class T>
using Summed = enable_if_t<is_same_v<T, int> || is_same_v<T, uint> || is_same_v<T, float>, T>;
template <class T>
using Long = enable_if_t<is_same_v<T, ulong>>;
}  // namespace own

#define MENAGERIE_FETCH(space, name, Result) \
  template <class T>                         \
  Result atomic_##name##_explicit(volatile space atomic<T>*, remove_cv_t<T>, memory_order);
#define MENAGERIE_ATOMICS(space, Added)                                                     \
  template <class T>                                                                        \
  own::Loaded<T> atomic_load_explicit(const volatile space atomic<T>*, memory_order);       \
  template <class T>                                                                        \
  bool atomic_compare_exchange_weak_explicit(volatile space atomic<T>*, T*, remove_cv_t<T>, \
                                             memory_order, memory_order);                   \
  MENAGERIE_FETCH(space, store, void)                                                       \
  MENAGERIE_FETCH(space, exchange, own::Loaded<T>)                                          \
  MENAGERIE_FETCH(space, fetch_add, Added<T>)                                               \
  MENAGERIE_FETCH(space, fetch_sub, Added<T>)                                               \
  MENAGERIE_FETCH(space, fetch_and, own::Whole<T>)                                          \
  MENAGERIE_FETCH(space, fetch_or, own::Whole<T>)                                           \
  MENAGERIE_FETCH(space, fetch_xor, own::Whole<T>)                                          \
  MENAGERIE_FETCH(space, fetch_max, own::Whole<T>)                                          \
  MENAGERIE_FETCH(space, fetch_min, own::Whole<T>)
MENAGERIE_ATOMICS(device, own::Summed)
MENAGERIE_ATOMICS(threadgroup, own::Whole)
MENAGERIE_FETCH(device, max, own::Long<T>)
MENAGERIE_FETCH(device, min, own::Long<T>)

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T);
  vec<T, 2>& thread_elements();
  vec<T, 2> pair;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int Columns, int Rows = Columns>
simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(T);
#define MENAGERIE_MATRIX_MEMORY(space)                                                          \
  template <class T>                                                                            \
  void simdgroup_load(simdgroup_matrix<T, 8, 8>&, const space T*, ulong = 8, ulong2 = ulong2{}, \
                      bool = false);                                                            \
  template <class T>                                                                            \
  void simdgroup_store(simdgroup_matrix<T, 8, 8>, space T*, ulong = 8, ulong2 = ulong2{},       \
                       bool = false);
MENAGERIE_MATRIX_MEMORY(device)
MENAGERIE_MATRIX_MEMORY(threadgroup)
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>&, simdgroup_matrix<A, 8, 8>,
                                   simdgroup_matrix<B, 8, 8>, simdgroup_matrix<C, 8, 8>);
template <class D, class A, class B>
void simdgroup_multiply(simdgroup_matrix<D, 8, 8>&, simdgroup_matrix<A, 8, 8>,
                        simdgroup_matrix<B, 8, 8>);

template <class T, int Columns, int Rows>
struct matrix {
  matrix() = default;
  explicit matrix(T);
  template <class... Parts>
  matrix(T, T, Parts...);
  template <class... Parts>
  matrix(vec<T, Rows>, vec<T, Rows>, Parts...);
  vec<T, Rows>& operator[](int);
  vec<T, Rows> operator[](int) const;
  vec<T, Rows> columns[Columns];
};
// Of one of Metal's matrices: clang deduces no size of its own vectors from an int.
#define MENAGERIE_MATRIX_OF(T, C, R)                           \
  T##R operator*(matrix<T, C, R>, T##C);                       \
  T##C operator*(T##R, matrix<T, C, R>);                       \
  matrix<T, C, R> operator*(T, matrix<T, C, R>);               \
  matrix<T, C, R> operator*(matrix<T, C, R>, T);               \
  matrix<T, C, R> operator+(matrix<T, C, R>, matrix<T, C, R>); \
  matrix<T, C, R> operator-(matrix<T, C, R>, matrix<T, C, R>); \
  matrix<T, R, C> transpose(matrix<T, C, R>);
#define MENAGERIE_ROWS(T, C) \
  MENAGERIE_MATRIX_OF(T, C, 2) MENAGERIE_MATRIX_OF(T, C, 3) MENAGERIE_MATRIX_OF(T, C, 4)
#define MENAGERIE_DO(T) MENAGERIE_ROWS(T, 2) MENAGERIE_ROWS(T, 3) MENAGERIE_ROWS(T, 4)
MENAGERIE_DO(float)
MENAGERIE_DO(half)
#undef MENAGERIE_DO
template <class T, int K, int C, int R>
matrix<T, C, R> operator*(matrix<T, K, R>, matrix<T, C, K>);
template <class T, int N>
T determinant(matrix<T, N, N>);

namespace precise {
using namespace metal;
}
namespace fast {
using namespace metal;
}

}  // namespace metal

MENAGERIE_MATRICES(float)
MENAGERIE_MATRICES(half)

#else
