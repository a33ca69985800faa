// Products with integers: a weight as the file stores it (format/FORMAT.md, rule 8), and the
// rounding of the other operand, where that is allowed and known.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/safetensors.h"
#include "common/tensor.h"

namespace menagerie {

// The rounding of a slice of numbers to 0..255: x to floor(x / scale + zero + 1/2), so that zero is
// an integer and the smallest and largest, or zero beyond them, just fit. A slice with NaN or an
// infinity has the scale NaN, one of less than 1e-34 throughout the scale zero; both are rounded to
// 0.
struct Rounding {
  float scale = 0;
  int32_t zero = 0;

  float back(uint8_t rounded) const {
    return static_cast<float>(static_cast<int32_t>(rounded) - zero) * scale;
  }
};

// The stored form of a float32 constant, in the mapped file as the backend's device sees it:
// halves, or integers of which each group of a row is multiplied by its scale.
struct NarrowRows {
  // Float16, bfloat16 or int8 [rows, columns], or uint8 [rows, columns / 2 rounded up] of pairs.
  Tensor values;
  Tensor scales;  // bfloat16 [rows, groups], for integers
  int64_t columns = 0;
  // Where products may round their other operand: each row's scale, and the sum of its floats.
  std::vector<float> row_scales, sums;
  std::optional<Rounding> operand;  // its rounding; none: by the values of each slice
};

// Rows that a weight is a view of, and the number of the first.
struct PackedRows {
  const NarrowRows* all;
  int64_t first;
};

// Return the rows behind a weight [rows, ...]; none unless it is a dense view of whole such rows.
std::optional<PackedRows> rows_behind(const Tensor& weight);

// Widen `count` numbers of a row from a column on to floats; exact.
void widen(const NarrowRows& rows, int64_t row, int64_t column, int64_t count, float* to);
// Widen all rows into `to`, which has room for them.
void widen(const NarrowRows& rows, std::span<float> to);

// The rows that a weight is a view of, for products with another operand that has been rounded.
struct IntegerWeight {
  Tensor values;        // int8, of the weight's sizes, contiguous
  const float* scales;  // one for each element of its first axis
  const float* sums;
  const Rounding* operand;  // null: none
};

// Return the same rows; none either if the other operand may not be rounded.
std::optional<IntegerWeight> integers_behind(const Tensor& weight);

// Return the rounding of numbers from `lowest` to `highest`, or zero beyond them.
Rounding rounding_of(float lowest, float highest);

// Round slices of `length` numbers that lie one after another: all by `fixed`, with numbers beyond
// its range rounded to its ends; without it, each slice by its own values.
std::vector<Rounding> round_slices(const float* from, int64_t slices, int64_t length,
                                   const Rounding* fixed, uint8_t* to);

// Round likewise and convert back, for kernels that compute in floats: return a fresh contiguous
// tensor of what the integers of each element of the first axis represent.
Tensor rounded_and_back(const Tensor& tensor, const Rounding* fixed);

class QuantisedWeight {
 public:
  // Return whether a dtype can hold such integers; the constructor checks whether it does.
  static bool may_be(Dtype stored) { return stored == Dtype::kInt8 || stored == Dtype::kUInt8; }

  // Read a weight; fail with its name and the broken rule.
  QuantisedWeight(const SafeTensors& file, const std::string& name);

  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const { return rows_ * columns_; }
  // Return the integers themselves; `view` returns a part of the file as a storage.
  using View = std::function<std::shared_ptr<Storage>(std::span<const std::byte>)>;
  std::shared_ptr<const NarrowRows> integers(const View& view) const;

 private:
  std::vector<int64_t> unpacked_shape(const SafeTensors& file, const std::string& name) const;
  int64_t bytes_in_row() const { return packed_ ? (columns_ + 1) / 2 : columns_; }
  std::optional<Rounding> rounding_beside(const SafeTensors& file, const std::string& name) const;

  bool by_row_ = false;
  bool packed_;  // two of four bits in a byte, the first in its lower half, each plus eight
  std::vector<int64_t> shape_;
  int64_t rows_ = 0, columns_ = 0, group_ = 0;
  std::span<const std::byte> values_;
  std::span<const std::byte> scales_;  // bfloat16
  std::optional<Rounding> operand_;    // of the operand that meets the weight in a product
};

}  // namespace menagerie
