// Element types in C++, and the step from a dtype number to one of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "common/dtype.h"
#include "common/error.h"

namespace menagerie {

// IEEE half precision; computed with in float, which GCC and Clang do by themselves.
using Float16 = _Float16;

// The upper half of a float.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  // Rounds to nearest even; a NaN stays one.
  BFloat16(float value) {  // NOLINT(google-explicit-constructor): converts like a number
    const auto whole = __builtin_bit_cast(uint32_t, value);
    bits = value != value ? uint16_t{0x7FC0}
                          : static_cast<uint16_t>((whole + 0x7FFF + (whole >> 16 & 1)) >> 16);
  }
  operator float() const {  // NOLINT(google-explicit-constructor): converts like a number
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  }
};

// A factor of tensors of whole numbers, which must be one too.
inline int64_t whole_factor(double factor) {
  constexpr double kBeyond = 0x1p63;
  require(factor >= -kBeyond && factor < kBeyond && std::trunc(factor) == factor, "the factor ",
          factor, " is not a whole number");
  return static_cast<int64_t>(factor);
}

// Calls body with a value of the C++ type of dtype.
template <class Body>
void with_type(Dtype dtype, Body&& body) {
  switch (dtype) {
    case Dtype::kUInt8:
      return body(uint8_t{});
    case Dtype::kInt8:
      return body(int8_t{});
    case Dtype::kInt16:
      return body(int16_t{});
    case Dtype::kInt32:
      return body(int32_t{});
    case Dtype::kInt64:
      return body(int64_t{});
    case Dtype::kFloat16:
      return body(Float16{});
    case Dtype::kFloat32:
      return body(float{});
    case Dtype::kFloat64:
      return body(double{});
    case Dtype::kBool:
      return body(bool{});
    case Dtype::kBFloat16:
      return body(BFloat16{});
  }
  fail("dtype number ", static_cast<int32_t>(dtype), " is not supported");
}

// Calls body(index) for every index of the sizes, the last axis fastest.
template <class Body>
void for_each_index(std::span<const int64_t> sizes, Body&& body) {
  for (const int64_t size : sizes) {
    if (size == 0) return;
  }
  std::vector<int64_t> index(sizes.size(), 0);
  while (true) {
    body(std::span<const int64_t>(index));
    size_t axis = sizes.size();
    while (axis > 0 && ++index[axis - 1] == sizes[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace menagerie
