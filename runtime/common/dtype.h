// Element types, numbered as the shim ABI numbers them (c10/core/ScalarType.h).
#pragma once

#include <cstdint>
#include <string_view>

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
  std::string_view name;         // torch's and numpy's
  std::string_view safetensors;  // the format's
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

// The dtype with that number; fails for numbers the runtime does not know.
inline Dtype to_dtype(int32_t number) { return info(static_cast<Dtype>(number)).dtype; }

inline int64_t element_size(Dtype dtype) { return info(dtype).bytes; }

inline bool is_floating(Dtype dtype) {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16 ||
         dtype == Dtype::kFloat64;
}

}  // namespace menagerie
