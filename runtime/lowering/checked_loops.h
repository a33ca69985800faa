// Put before kernels whose loops check indices and divisors. An exception that left the body of
// an OpenMP loop would end the process; so the body's is kept, and thrown where the function ends.
#pragma once

#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace {

class LoopFault {
 public:
  // To be called while an exception is handled; the first one is kept.
  void keep() noexcept {
    if (!taken_.test_and_set()) fault_ = std::current_exception();
  }
  [[gnu::cold, gnu::noinline]] void divided_by_zero(const char* place) noexcept {
    try {
      throw std::runtime_error(std::string("an integer is divided by zero: ") + place);
    } catch (...) {
      keep();
    }
  }
  // To be called when all threads are through.
  void rethrow() const {
    if (fault_) std::rethrow_exception(fault_);
  }

 private:
  std::atomic_flag taken_;
  std::exception_ptr fault_;
};

enum class Division { kTruncated, kFloored, kModulus, kRemainder };

// Integer division as eager PyTorch's: the least number by -1 wraps around. A divisor of 0 fails
// the run.
template <Division division, typename A, typename B>
inline std::common_type_t<A, B> divided(A left, B right, LoopFault& fault, const char* place) {
  using T = std::common_type_t<A, B>;
  const T a = left, b = right;
  if (__builtin_expect(b == 0, 0)) {
    fault.divided_by_zero(place);
    return 0;
  }
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) {
      if (division == Division::kModulus || division == Division::kRemainder) return 0;
      return static_cast<T>(std::make_unsigned_t<T>(0) - static_cast<std::make_unsigned_t<T>>(a));
    }
  }
  const T quotient = a / b, rest = a % b;
  const bool turned = rest != 0 && (rest < 0) != (b < 0);
  if (division == Division::kTruncated) return quotient;
  if (division == Division::kFloored) return quotient - (turned ? 1 : 0);
  if (division == Division::kModulus) return rest;
  return turned ? rest + b : rest;
}

#if INDUCTOR_USE_VECTOR_TYPES()
// The first `count` lanes of a vector; the others need not be numbers to divide by.
template <Division division, typename T>
inline at::vec::Vectorized<T> divided(const at::vec::Vectorized<T>& a,
                                      const at::vec::Vectorized<T>& b, int64_t count,
                                      LoopFault& fault, const char* place) {
  using Vec = at::vec::Vectorized<T>;
  alignas(Vec) T left[Vec::size()], right[Vec::size()];
  a.store(left);
  b.store(right);
  for (int64_t i = 0; i < Vec::size() && i < count; ++i) {
    left[i] = divided<division>(left[i], right[i], fault, place);
  }
  return Vec::loadu(left);
}

template <Division division, typename T, int N>
inline at::vec::VectorizedN<T, N> divided(const at::vec::VectorizedN<T, N>& a,
                                          const at::vec::VectorizedN<T, N>& b, int64_t count,
                                          LoopFault& fault, const char* place) {
  constexpr int64_t kLanes = at::vec::Vectorized<T>::size();
  at::vec::VectorizedN<T, N> result;
  for (int i = 0; i < N; ++i) {
    result[i] = divided<division>(a[i], b[i], count - i * kLanes, fault, place);
  }
  return result;
}
#endif

}  // namespace
