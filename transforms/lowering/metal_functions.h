// Stands behind torch's headers before generated shaders: numbers as eager PyTorch has them on the
// CPU. A kernel's checks write their number to `fault`, which the runtime reads behind the run.
namespace menagerie {

enum class Division { kTruncated, kFloored, kModulus, kRemainder };

// The least number by -1 wraps around.
template <Division division, typename T>
inline T divided(T a, T b) {
  if (b == T(-1) && T(-1) < T(0)) {
    if (division == Division::kModulus || division == Division::kRemainder) return T(0);
    return T(::metal::make_unsigned_t<T>(0) - ::metal::make_unsigned_t<T>(a));
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

inline float remainder(float a, float b) {
  const float rest = ::metal::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// An infinity is as long with NaN as without.
inline float hypot(float a, float b) {
  const float x = ::metal::fabs(a), y = ::metal::fabs(b);
  return ::metal::isinf(x) || ::metal::isinf(y) ? INFINITY : ::c10::metal::hypot(x, y);
}

}  // namespace menagerie
