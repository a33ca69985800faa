// Element types, numbered as in the shim ABI (c10/core/ScalarType.h), and their C++ types.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace menagerie {

enum class Dtype : int32_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kBool = 11,
  kBFloat16 = 15,
};

struct DtypeInfo {
  Dtype dtype;
  std::string_view name;         // torch's and numpy's name
  std::string_view safetensors;  // the format's name
  int64_t bytes;
};

inline constexpr DtypeInfo kDtypes[] = {
    {Dtype::kUInt8, "uint8", "U8", 1},      {Dtype::kInt8, "int8", "I8", 1},
    {Dtype::kInt16, "int16", "I16", 2},     {Dtype::kInt32, "int32", "I32", 4},
    {Dtype::kInt64, "int64", "I64", 8},     {Dtype::kFloat16, "float16", "F16", 2},
    {Dtype::kFloat32, "float32", "F32", 4}, {Dtype::kFloat64, "float64", "F64", 8},
    {Dtype::kBool, "bool", "BOOL", 1},      {Dtype::kBFloat16, "bfloat16", "BF16", 2},
};

inline const DtypeInfo& info(Dtype dtype) {
  for (const DtypeInfo& entry : kDtypes) {
    if (entry.dtype == dtype) return entry;
  }
  fail("dtype number ", static_cast<int32_t>(dtype), " is not supported");
}

// Return the dtype with that number; fail for numbers that the runtime does not know.
inline Dtype to_dtype(int32_t number) { return info(static_cast<Dtype>(number)).dtype; }

inline int64_t element_size(Dtype dtype) { return info(dtype).bytes; }

inline bool is_half(Dtype dtype) { return dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16; }

inline bool is_floating(Dtype dtype) {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16 ||
         dtype == Dtype::kFloat64;
}

// IEEE half precision; GCC and Clang compute with it in float by themselves.
using Float16 = _Float16;

// The upper half of a float.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  // Round to nearest even; a NaN stays NaN.
  BFloat16(float value) {  // NOLINT(google-explicit-constructor): converts like a number
    const auto whole = __builtin_bit_cast(uint32_t, value);
    bits = value != value ? uint16_t{0x7FC0}
                          : static_cast<uint16_t>((whole + 0x7FFF + (whole >> 16 & 1)) >> 16);
  }
  operator float() const {  // NOLINT(google-explicit-constructor): converts like a number
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  }
};

// Return a factor for tensors of integers, truncated to an integer as torch does.
inline int64_t whole_factor(double factor) {
  constexpr double kBeyond = 0x1p63;
  require(factor >= -kBeyond && factor < kBeyond, "the factor ", factor, " is out of range");
  return static_cast<int64_t>(factor);
}

// Call body with a value of dtype's C++ type.
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

// Call body(index) for every index of the sizes, the last axis fastest.
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
