// What generated code calls around and within its loops: the beginning and the end of a kernel, for
// a profile, and vectorised elementary functions by Sleef's names. exp uses our own polynomial, as
// attention and softmax depend on it; the others go lane by lane through the C library, which is
// within 1 ULP.
#include <cmath>

#include "common/shim_support.h"
#include "common/vector_math.h"

namespace {

template <class Vector, class Function>
Vector each_lane(Vector x, Function function) {
  for (size_t lane = 0; lane < sizeof(Vector) / sizeof(x[0]); ++lane) x[lane] = function(x[lane]);
  return x;
}

template <class Vector, class Function>
Vector each_pair(Vector x, Vector y, Function function) {
  for (size_t lane = 0; lane < sizeof(Vector) / sizeof(x[0]); ++lane) {
    x[lane] = function(x[lane], y[lane]);
  }
  return x;
}

}  // namespace

#define MENAGERIE_DOUBLES(name, suffix)                               \
  MENAGERIE_ABI Double4 Sleef_##name##d4##suffix(Double4 x) {         \
    return each_lane(x, [](double lane) { return std::name(lane); }); \
  }
#define MENAGERIE_FLOATS(name, suffix)                               \
  MENAGERIE_ABI Float8 Sleef_##name##f8##suffix(Float8 x) {          \
    return each_lane(x, [](float lane) { return std::name(lane); }); \
  }
#define MENAGERIE_BOTH(name, suffix) MENAGERIE_FLOATS(name, suffix) MENAGERIE_DOUBLES(name, suffix)
#define MENAGERIE_PAIRS(name, suffix)                                           \
  MENAGERIE_ABI Float8 Sleef_##name##f8##suffix(Float8 x, Float8 y) {           \
    return each_pair(x, y, [](float a, float b) { return std::name(a, b); });   \
  }                                                                             \
  MENAGERIE_ABI Double4 Sleef_##name##d4##suffix(Double4 x, Double4 y) {        \
    return each_pair(x, y, [](double a, double b) { return std::name(a, b); }); \
  }

MENAGERIE_ABI Float8 Sleef_expf8_u10(Float8 x) { return menagerie::exp8(x); }
MENAGERIE_DOUBLES(exp, _u10)

MENAGERIE_BOTH(acos, _u10)
MENAGERIE_BOTH(acosh, _u10)
MENAGERIE_BOTH(asin, _u10)
MENAGERIE_BOTH(asinh, _u10)
MENAGERIE_BOTH(atan, _u10)
MENAGERIE_BOTH(atanh, _u10)
MENAGERIE_BOTH(cos, _u10)
MENAGERIE_BOTH(cosh, _u10)
MENAGERIE_BOTH(erf, _u10)
MENAGERIE_BOTH(erfc, _u15)
MENAGERIE_BOTH(exp2, _u10)
MENAGERIE_BOTH(expm1, _u10)
MENAGERIE_BOTH(lgamma, _u10)
MENAGERIE_BOTH(log, _u10)
MENAGERIE_BOTH(log10, _u10)
MENAGERIE_BOTH(log1p, _u10)
MENAGERIE_BOTH(log2, _u10)
MENAGERIE_BOTH(sin, _u10)
MENAGERIE_BOTH(sinh, _u10)
MENAGERIE_BOTH(tan, _u10)
MENAGERIE_BOTH(tanh, _u10)
MENAGERIE_FLOATS(cos, _u35)
MENAGERIE_FLOATS(sin, _u35)

MENAGERIE_PAIRS(atan2, _u10)
MENAGERIE_PAIRS(copysign, )
MENAGERIE_PAIRS(fmod, )
MENAGERIE_PAIRS(hypot, _u05)
MENAGERIE_PAIRS(nextafter, )
MENAGERIE_PAIRS(pow, _u10)

using namespace menagerie;

MENAGERIE_SHIM menagerie_kernel_begin(const char* name, int64_t bytes) {
  return guarded(__func__, [&] {
    if (Profile* profile = Context::current().profile()) profile->begin(name, double(bytes));
  });
}

MENAGERIE_SHIM menagerie_kernel_end() {
  return guarded(__func__, [] {
    if (Profile* profile = Context::current().profile()) profile->end();
  });
}
