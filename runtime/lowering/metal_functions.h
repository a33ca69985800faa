// Put behind torch's headers before generated shaders: numbers as eager PyTorch has them on the
// CPU. A kernel's checks write their number to `fault`, which the runtime reads behind the run.
namespace menagerie {

// The least number has no opposite: it wraps around to itself.
template <typename T>
inline T negated(T x) {
  return T(::metal::make_unsigned_t<T>(0) - ::metal::make_unsigned_t<T>(x));
}
template <typename T>
inline T magnitude(T x) {
  return x < T(0) ? negated(x) : x;
}

enum class Division { kTruncated, kFloored, kModulus, kRemainder };

template <Division division, typename T>
inline T divided(T a, T b) {
  if (b == T(-1) && T(-1) < T(0)) {
    if (division == Division::kModulus || division == Division::kRemainder) return T(0);
    return negated(a);
  }
  const T quotient = T(a / b), rest = T(a % b);
  const bool turned = rest != T(0) && (rest < T(0)) != (b < T(0));
  if (division == Division::kTruncated) return quotient;
  if (division == Division::kFloored) return T(quotient - (turned ? 1 : 0));
  if (division == Division::kModulus) return rest;
  return turned ? T(rest + b) : rest;
}

template <Division division, typename T>
inline T divided(T a, T b, device int* fault, int number) {
  if (b != T(0)) return divided<division>(a, b);
  *fault = number;
  return T(0);
}

// Shifts by fewer bits than 0, or more than there are, leave 0 or the sign alone.
template <typename T>
inline T shifted_left(T a, T b) {
  return b >= T(0) && b < T(8 * sizeof(T)) ? T(::metal::make_unsigned_t<T>(a) << b) : T(0);
}
template <typename T>
inline T shifted_right(T a, T b) {
  return b >= T(0) && b < T(8 * sizeof(T)) ? T(a >> b) : T(a < T(0) ? -1 : 0);
}

inline float remainder(float a, float b) {
  const float rest = ::metal::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// An infinity is as long with NaN as without.
inline float hypot(float a, float b) {
  const float x = ::metal::fabs(a), y = ::metal::fabs(b);
  return ::metal::isinf(x) || ::metal::isinf(y) ? INFINITY : ::c10::metal::hypot(x, y);
}

// c10's is NaN for an infinity, and neither for a pole nor near 0 what it should be.
inline float lgamma(float x) {
  const float size = ::metal::fabs(x);
  if (::metal::isinf(x) || (x <= 0 && x == ::metal::floor(x))) return INFINITY;
  return size < 1e-4 ? -::metal::precise::log(size) - 0.57721566 * x : ::c10::metal::log_gamma(x);
}

// Hurwitz's; c10's is NaN where its terms are too small for a float.
inline float zeta(float x, float q) {
  const bool none = x > 1 && q > 0 && ::metal::isfinite(q) && ::metal::precise::pow(q, -x) == 0;
  return none ? 0 : ::c10::metal::zeta(x, q);
}

// A polynomial, its highest coefficient first.
template <int terms>
inline float polynomial(float x, constant const float (&coefficients)[terms]) {
  float sum = coefficients[0];
  for (int i = 1; i < terms; ++i) sum = sum * x + coefficients[i];
  return sum;
}

// The normal distribution's quantile, by the approximations of Cephes (ATen/native/Math.h).
constant const float kNdtriP0[] = {-59.9633501, 98.0010754, -56.6762857, 13.9312609, -1.23916584};
constant const float kNdtriQ0[] = {1.0,        1.95448858,  4.67627913, 86.3602421, -225.462688,
                                   200.260212, -82.0372256, 15.9056225, -1.18331621};
constant const float kNdtriP1[] = {4.05544892,   31.5251095,    57.1628192,
                                   44.0805074,   14.6849562,    2.18663307,
                                   -0.140256079, -0.0350424627, -0.000857456785};
constant const float kNdtriQ1[] = {1.0,          15.7799883,    45.3907635,
                                   41.3172038,   15.0425386,    2.50464946,
                                   -0.142182923, -0.0380806408, -0.000933259481};
constant const float kNdtriP2[] = {3.23774892,     6.91522889,     3.93881025,
                                   1.33303461,     0.20148539,     0.0123716635,
                                   0.000301581554, 2.65806975e-06, 6.23974539e-09};
constant const float kNdtriQ2[] = {1.0,           6.02427039,   3.67983564,     1.37702099,
                                   0.216236994,   0.0134204006, 0.000328014465, 2.89247865e-06,
                                   6.79019408e-09};

inline float ndtri(float p) {
  if (p == 0) return -INFINITY;
  if (p == 1) return INFINITY;
  if (!(p > 0 && p < 1)) return NAN;
  constexpr float tail = 0.13533528323661269189;  // exp(-2)
  const float y = p > 1 - tail ? 1 - p : p;
  if (y > tail) {
    const float d = y - 0.5, square = d * d;
    const float ratio = polynomial(square, kNdtriP0) / polynomial(square, kNdtriQ0);
    return (d + d * (square * ratio)) * 2.50662827463100050242;  // sqrt(2 pi)
  }
  const float x = ::metal::precise::sqrt(-2 * ::metal::precise::log(y)), z = 1 / x;
  const float ratio = x < 8 ? polynomial(z, kNdtriP1) / polynomial(z, kNdtriQ1)
                            : polynomial(z, kNdtriP2) / polynomial(z, kNdtriQ2);
  const float quantile = x - ::metal::precise::log(x) / x - z * ratio;
  return p > 1 - tail ? quantile : -quantile;
}

// Kahan's; c10's expm1f leaves out the lower half of log 2.
inline float expm1(float x) {
  const float power = ::metal::precise::exp(x), less = power - 1;
  if (power == 1) return x;
  return ::metal::fabs(x) > 0.5 ? less : less * (x / ::metal::precise::log(power));
}

inline float erfc(float x) {
  const float of_magnitude = ::c10::metal::erfcx(::metal::fabs(x)) * ::metal::precise::exp(-x * x);
  return x < 0 ? 2 - of_magnitude : of_magnitude;
}

// torch's reductions of 64-bit integers take what lanes give that are not there: where a row does
// not fill its last SIMD group, that is undefined. Overloads for them alone, in c10's namespace.
struct Largest {
  static long of(long a, long b) { return ::metal::max(a, b); }
};
struct Least {
  static long of(long a, long b) { return ::metal::min(a, b); }
};
struct Product {
  static long of(long a, long b) { return a * b; }
};

// Of the lanes that came here, which are the first ones.
template <typename Op>
inline long folded(long value) {
  const ushort lane = ::metal::simd_prefix_exclusive_sum(ushort(1));
  const ushort lanes = ::metal::simd_sum(ushort(1));
  for (ushort by = 16; by > 0; by /= 2) {
    const int2 bits = ::metal::simd_shuffle_and_fill_down(as_type<int2>(value), int2(0), by);
    if (lane + by < lanes) value = Op::of(value, as_type<long>(bits));
  }
  return ::c10::metal::simd_broadcast(value, 0);
}

template <typename Op>
inline long folded(threadgroup long* data, long value, unsigned idx, unsigned size) {
  const long part = folded<Op>(value);
  if (idx % 32 == 0) data[idx / 32] = part;
  ::metal::threadgroup_barrier(::metal::mem_flags::mem_threadgroup);
  if (size > 32) {
    if (idx < (size + 31) / 32) {
      const long whole = folded<Op>(data[idx]);
      if (idx == 0) data[0] = whole;
    }
    ::metal::threadgroup_barrier(::metal::mem_flags::mem_threadgroup);
  }
  return data[0];
}

// Of the lanes that have the value that was chosen, or a NaN, the first place.
template <typename T>
inline long place_of(T chosen, threadgroup long* places, T value, long place, unsigned idx,
                     unsigned size) {
  const bool here = value == chosen || value != value;
  return folded<Least>(places, here ? place : LONG_MAX, idx, size);
}

}  // namespace menagerie

namespace c10 {
namespace metal {

inline long threadgroup_prod(threadgroup long* data, long value, unsigned idx, unsigned size) {
  return ::menagerie::folded<::menagerie::Product>(data, value, idx, size);
}
inline long threadgroup_max(threadgroup long* data, long value, unsigned idx, unsigned size) {
  return ::menagerie::folded<::menagerie::Largest>(data, value, idx, size);
}
inline long threadgroup_min(threadgroup long* data, long value, unsigned idx, unsigned size) {
  return ::menagerie::folded<::menagerie::Least>(data, value, idx, size);
}
// torch's take the first lane of those with the value: of a dynamic row that has more elements than
// a group has threads, another lane may have an earlier place.
template <typename T>
inline long threadgroup_argmax(threadgroup T* data, threadgroup long* places, T value, long place,
                               unsigned idx, unsigned size) {
  const T best = threadgroup_max(data, value, idx, size);
  return ::menagerie::place_of(best, places, value, place, idx, size);
}
template <typename T>
inline long threadgroup_argmin(threadgroup T* data, threadgroup long* places, T value, long place,
                               unsigned idx, unsigned size) {
  const T best = threadgroup_min(data, value, idx, size);
  return ::menagerie::place_of(best, places, value, place, idx, size);
}

}  // namespace metal
}  // namespace c10
