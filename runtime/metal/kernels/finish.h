// What is done to a product's element before it is rounded and stored.
#include "steps.h"

// By comparisons, which let a NaN pass; of bounds that cross, the upper one counts.
inline float bounded(float value, float low, float high) {
  const float least = value < low ? low : value;
  return least > high ? high : least;
}

// x times the normal distribution's share below x. The tail's error is below 1e-7 (Abramowitz and
// Stegun, Handbook of Mathematical Functions, 7.1.26).
inline float gelu(float x) {
  const float z = fabs(x) * 0.70710678f;
  const float t = 1.0f / (1.0f + 0.3275911f * z);
  const float sum =
      t * (0.254829592f +
           t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float tail = 0.5f * sum * precise::exp(-z * z);
  return x > 0 ? x * (1.0f - tail) : x * tail;
}

inline float gelu_by_tanh(float x) {
  return 0.5f * x * (1.0f + precise::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
}

inline float activated(int step, float x, float low, float high) {
  switch (step) {
    case kRelu:
      return x < 0 ? 0.0f : x;
    case kLeakyRelu:
      return x < 0 ? x * low : x;
    case kClamp:
      return bounded(x, low, high);
    case kGelu:
      return gelu(x);
    case kGeluTanh:
      return gelu_by_tanh(x);
    case kSilu:
      return x / (1.0f + precise::exp(-x));
    case kSigmoid:
      return 1.0f / (1.0f + precise::exp(-x));
    case kTanh:
      return precise::tanh(x);
    case kHardSwish:
      return x * bounded(x + 3.0f, 0.0f, 6.0f) / 6.0f;
    case kHardSigmoid:
      return bounded(x + 3.0f, 0.0f, 6.0f) / 6.0f;
    default:
      return x * low + high;
  }
}

template <typename T>
struct Finisher {
  constant Finish* finish;
  device const T* other;
  constant Beside* of;
  long batch;

  // Where the other operand has an element; the one of the next row is `of->row` further.
  device const T* at(long row, long column) const {
    long across = column * of->down;
    if (of->width > 1) {
      const uint place = static_cast<uint>(column);
      across = place / of->width * of->down + place % of->width * of->across;
    }
    return other + batch * of->batch + row * of->row + across;
  }
  long down(long rows) const { return rows * of->row; }
  float operator()(float value, long row, long column) const {
    return finish->count == 0 ? value : (*this)(value, at(row, column));
  }
  float operator()(float value, device const T* beside) const {
    for (int i = 0; i < finish->count; ++i) {
      const int step = finish->steps[i];
      const float low = finish->low[i];
      if (step == kAdd) {
        value += low * static_cast<float>(*beside);
      } else if (step == kMultiply) {
        value *= static_cast<float>(*beside);
      } else {
        value = activated(step, value, low, finish->high[i]);
      }
    }
    return value;
  }
};
