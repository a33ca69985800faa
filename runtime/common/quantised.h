// Products with integers: a weight as the file keeps it (format/FORMAT.md, rule 8), and how the
// other operand is rounded when it is known, where that may be.
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

// How a slice of numbers is rounded to 0..255: x to floor(x / scale + zero + 1/2), so that zero
// is a whole number and the smallest and largest, or zero beyond them, just fit. A slice with NaN
// or an infinity has the scale NaN, one of less than 1e-34 throughout the scale zero; they are
// rounded to 0.
struct Rounding {
  float scale = 0;
  int32_t zero = 0;

  float back(uint8_t rounded) const {
    return static_cast<float>(static_cast<int32_t>(rounded) - zero) * scale;
  }
};

// What a float32 constant is stored as, in the mapped file as the backend's device sees it: halves,
// or integers of which each group of a row is to be taken times its scale.
struct NarrowRows {
  // Float16, bfloat16 or int8 [rows, columns], or uint8 [rows, columns / 2 rounded up] of two each.
  Tensor values;
  Tensor scales;  // bfloat16 [rows, groups], of integers
  int64_t columns = 0;
  // Where products may round their other operand: each row's one scale, and the sum of its floats.
  std::vector<float> row_scales, sums;
  std::optional<Rounding> operand;  // how it is rounded; none: by what each slice holds
};

// Rows that a weight is a view of, and which is the first.
struct PackedRows {
  const NarrowRows* all;
  int64_t first;
};

// Those of a weight [rows, ...]; none if it is no dense view of whole rows of such a constant.
std::optional<PackedRows> rows_behind(const Tensor& weight);

// So many numbers of a row from a column on, as floats; exact.
void widen(const NarrowRows& rows, int64_t row, int64_t column, int64_t count, float* to);
// All rows, where `to` has room for them.
void widen(const NarrowRows& rows, std::span<float> to);

// The rows that a weight is a view of, to multiply another operand that has been rounded.
struct IntegerWeight {
  Tensor values;        // int8, of the weight's sizes, contiguous
  const float* scales;  // of each element of its first axis
  const float* sums;
  const Rounding* operand;  // null: none
};

// The same rows; none either if the other operand may not be rounded.
std::optional<IntegerWeight> integers_behind(const Tensor& weight);

// How numbers from `lowest` to `highest`, or zero beyond them, are rounded.
Rounding rounding_of(float lowest, float highest);

// Rounds slices of `length` numbers that lie one after the other: all as `fixed` says, numbers
// beyond its range to its ends; each by itself without one.
std::vector<Rounding> round_slices(const float* from, int64_t slices, int64_t length,
                                   const Rounding* fixed, uint8_t* to);

// The same and back again, for who computes in floats: a fresh contiguous tensor of the values that
// the integers of each element of the first axis stand for.
Tensor rounded_and_back(const Tensor& tensor, const Rounding* fixed);

class QuantisedWeight {
 public:
  // Whether the tensor's type can hold such integers; whether it does, the constructor says.
  static bool may_be(Dtype stored) { return stored == Dtype::kInt8 || stored == Dtype::kUInt8; }

  // Fails with the name and the broken rule.
  QuantisedWeight(const SafeTensors& file, const std::string& name);

  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const { return rows_ * columns_; }
  // The integers themselves; `view` gives a part of the file as a storage.
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
  std::optional<Rounding> operand_;    // of what meets the weight in a product
};

}  // namespace menagerie
