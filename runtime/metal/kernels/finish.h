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

// A kernel's last arguments but sums of parts.
#define FINISH(Other, Steps, Of)                                                      \
  device const T *other [[buffer(Other)]], constant Finish &finish [[buffer(Steps)]], \
      constant Beside &of_other [[buffer(Of)]]

// Neighbours in a row of the result, the first ones of which count.
template <uint N>
struct Run {
  float4 fours[N];

  static Run of(float one) {
    Run run;
    for (uint i = 0; i < N; ++i) run.fours[i] = one;
    return run;
  }
  void add(float factor, Run more) {
    for (uint i = 0; i < 4 * N; ++i) {
      fours[i / 4][i % 4] = fma(factor, more.fours[i / 4][i % 4], fours[i / 4][i % 4]);
    }
  }
  void multiply(Run more) {
    for (uint i = 0; i < 4 * N; ++i) fours[i / 4][i % 4] *= more.fours[i / 4][i % 4];
  }
  template <typename T>
  void store(device T* to, uint room) const {
    if (room >= 4 * N) {
      for (uint i = 0; i < N; ++i) {
        packed_vec<T, 4> all;
        for (uint e = 0; e < 4; ++e) all[e] = static_cast<T>(fours[i][e]);
        reinterpret_cast<device packed_vec<T, 4>*>(to)[i] = all;
      }
      return;
    }
    for (uint i = 0; i < 4 * N; ++i) {
      if (i < room) to[i] = static_cast<T>(fours[i / 4][i % 4]);
    }
  }
};

// Each element lies `step` from the one before.
template <uint N, typename T>
Run<N> run_of(device const T* from, uint step, uint room) {
  Run<N> run;
  if (step == 1 && room >= 4 * N) {
    for (uint i = 0; i < N; ++i) {
      const packed_vec<T, 4> all = reinterpret_cast<device const packed_vec<T, 4>*>(from)[i];
      for (uint e = 0; e < 4; ++e) run.fours[i][e] = static_cast<float>(all[e]);
    }
  } else if (step == 0) {
    run = Run<N>::of(static_cast<float>(*from));
  } else {
    for (uint i = 0; i < 4 * N; ++i) {
      run.fours[i / 4][i % 4] = i < room ? static_cast<float>(from[i * step]) : 0.0f;
    }
  }
  return run;
}
template <typename T>
float4 four_of(device const T* from, uint step = 1, uint room = 4) {
  return run_of<1>(from, step, room).fours[0];
}

template <typename T>
struct Finisher {
  constant Finish* finish;
  device const T* other;
  constant Beside* of;
  uint batch;

  // Where the other operand has an element.
  device const T* at(uint row, uint column) const {
    const uint across = of->width > 1
                            ? column / of->width * of->down + column % of->width * of->across
                            : column * of->down;
    return other + (batch * of->batch + row * of->row + across);
  }
  float operator()(float value, uint row, uint column) const {
    Run<1> run = Run<1>::of(value);
    (*this)(run, row, column, 1);
    return run.fours[0][0];
  }
  // A row's elements from a column on, of which `room` count.
  template <uint N>
  void operator()(thread Run<N>& run, uint row, uint column, uint room) const {
    for (int i = 0; i < finish->count; ++i) {
      const int step = finish->steps[i];
      const float low = finish->low[i], high = finish->high[i];
      if (step == kAdd) {
        run.add(low, beside<N>(row, column, room));
      } else if (step == kMultiply) {
        run.multiply(beside<N>(row, column, room));
      } else {
        for (uint f = 0; f < N; ++f) {
          for (uint e = 0; e < 4; ++e)
            run.fours[f][e] = activated(step, run.fours[f][e], low, high);
        }
      }
    }
  }

 private:
  template <uint N>
  Run<N> beside(uint row, uint column, uint room) const {
    if (of->width <= 1) return run_of<N>(at(row, column), of->down, room);
    Run<N> run;
    for (uint i = 0; i < 4 * N; ++i) {
      run.fours[i / 4][i % 4] = i < room ? static_cast<float>(*at(row, column + i)) : 0.0f;
    }
    return run;
  }
};
