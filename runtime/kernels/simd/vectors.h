// Vectors of floats and the operations that kernels need. All of it is local to the including file,
// which is compiled for a processor of its own: the linker must not share it with other files.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace menagerie::simd {
namespace {

struct Lanes8 {
  using Vector = float __attribute__((vector_size(32)));
  static constexpr int64_t kCount = 8;

  static Vector load(const float* from) { return (Vector)_mm256_loadu_ps(from); }
  static void store(float* to, Vector x) { _mm256_storeu_ps(to, (__m256)x); }
  static Vector load_first(const float* from, int64_t count) {
    return (Vector)_mm256_maskload_ps(from, first(count));
  }
  static void store_first(float* to, Vector x, int64_t count) {
    _mm256_maskstore_ps(to, first(count), (__m256)x);
  }
  static Vector all(float value) { return (Vector)_mm256_set1_ps(value); }
  static Vector multiply_add(Vector a, Vector b, Vector c) {
    return (Vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
  }
  static Vector accumulate(Vector a, Vector b, Vector c) { return multiply_add(a, b, c); }
  static Vector larger(Vector a, Vector b) { return (Vector)_mm256_max_ps((__m256)a, (__m256)b); }
  // The bounds come first: of two operands the second is the result where one is NaN.
  static Vector clamped(Vector x, Vector lowest, Vector highest) {
    return (Vector)_mm256_min_ps((__m256)highest, _mm256_max_ps((__m256)lowest, (__m256)x));
  }
  static Vector rounded(Vector x) {
    return (Vector)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // Return x * 2^n for integer n from -126 to 127.
  static Vector scaled(Vector x, Vector n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32((__m256)n), _mm256_set1_epi32(127));
    return x * (Vector)_mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }
  static Vector inverse(Vector x) { return 1.0F / x; }
  // Return y, but zero where x is less than the lowest.
  static Vector zero_below(Vector x, Vector lowest, Vector y) { return x < lowest ? all(0) : y; }

 private:
  static __m256i first(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

#ifdef __AVX512F__
struct Lanes16 {
  using Vector = float __attribute__((vector_size(64)));
  static constexpr int64_t kCount = 16;

  static Vector load(const float* from) { return (Vector)_mm512_loadu_ps(from); }
  static void store(float* to, Vector x) { _mm512_storeu_ps(to, (__m512)x); }
  static Vector load_first(const float* from, int64_t count) {
    return (Vector)_mm512_maskz_loadu_ps(first(count), from);
  }
  static void store_first(float* to, Vector x, int64_t count) {
    _mm512_mask_storeu_ps(to, first(count), (__m512)x);
  }
  static Vector all(float value) { return (Vector)_mm512_set1_ps(value); }
  static Vector multiply_add(Vector a, Vector b, Vector c) {
    return (Vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
  }
  static Vector accumulate(Vector a, Vector b, Vector c) { return multiply_add(a, b, c); }
  static Vector larger(Vector a, Vector b) { return (Vector)_mm512_max_ps((__m512)a, (__m512)b); }
  static Vector clamped(Vector x, Vector lowest, Vector highest) {
    return (Vector)_mm512_min_ps((__m512)highest, _mm512_max_ps((__m512)lowest, (__m512)x));
  }
  static Vector rounded(Vector x) {
    return (Vector)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Vector scaled(Vector x, Vector n) {
    return (Vector)_mm512_scalef_ps((__m512)x, (__m512)n);
  }
  // One Newton step from an estimate of 14 bits gives 1 ULP, in a third of a division's time.
  static Vector inverse(Vector x) {
    const Vector near = (Vector)_mm512_rcp14_ps((__m512)x);
    const Vector error = multiply_add(-x, near, all(1));
    return multiply_add(near, error, near);
  }
  static Vector zero_below(Vector x, Vector lowest, Vector y) { return x < lowest ? all(0) : y; }

 private:
  static __mmask16 first(int64_t count) { return static_cast<__mmask16>((1U << count) - 1); }
};
#endif

// Several vectors as one: each operation is begun for all before the next one, so that none waits
// for the previous one's result.
template <class Lanes, int kVectors>
struct VectorGroup {
  static constexpr int64_t kCount = kVectors * Lanes::kCount;

  struct Vector {
    typename Lanes::Vector part[kVectors];

    Vector operator+(const Vector& b) const {
      return each([&](int i) { return part[i] + b.part[i]; });
    }
    Vector operator*(const Vector& b) const {
      return each([&](int i) { return part[i] * b.part[i]; });
    }
    Vector operator-() const {
      return each([&](int i) { return -part[i]; });
    }
  };

  static Vector load(const float* from) {
    return each([&](int i) { return Lanes::load(from + i * Lanes::kCount); });
  }
  static void store(float* to, const Vector& x) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) Lanes::store(to + i * Lanes::kCount, x.part[i]);
  }
  static Vector all(float value) {
    return each([&](int) { return Lanes::all(value); });
  }
  static Vector multiply_add(const Vector& a, const Vector& b, const Vector& c) {
    return each([&](int i) { return Lanes::multiply_add(a.part[i], b.part[i], c.part[i]); });
  }
  static Vector larger(const Vector& a, const Vector& b) {
    return each([&](int i) { return Lanes::larger(a.part[i], b.part[i]); });
  }
  static Vector rounded(const Vector& x) {
    return each([&](int i) { return Lanes::rounded(x.part[i]); });
  }
  static Vector scaled(const Vector& x, const Vector& n) {
    return each([&](int i) { return Lanes::scaled(x.part[i], n.part[i]); });
  }
  static Vector zero_below(const Vector& x, const Vector& lowest, const Vector& y) {
    return each([&](int i) { return Lanes::zero_below(x.part[i], lowest.part[i], y.part[i]); });
  }

 private:
  template <class Part>
  static Vector each(const Part& part) {
    Vector all;
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) all.part[i] = part(i);
    return all;
  }
};

}  // namespace
}  // namespace menagerie::simd
