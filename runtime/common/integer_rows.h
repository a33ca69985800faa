// Products with integers: a weight as the file keeps it (format/FORMAT.md, rule 8), and how the
// other operand is rounded when it is known, where that may be.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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

// What a float32 constant stands for, in the mapped file as the backend's device sees it: integers
// of which each group of a row is to be taken times its scale.
struct IntegerRows {
  Tensor values;  // int8 [rows, columns], or uint8 [rows, columns / 2 rounded up] of two each
  Tensor scales;  // bfloat16 [rows, groups]
  int64_t columns = 0;
  // Where products may round their other operand: each row's one scale, and the sum of its floats.
  std::vector<float> row_scales, sums;
  std::optional<Rounding> operand;  // how it is rounded; none: by what each slice holds
};

// Rows that a weight is a view of, and which is the first.
struct PackedRows {
  const IntegerRows* all;
  int64_t first;
};

// Those of a weight [rows, ...]; none if it is no dense view of whole rows of such a constant.
std::optional<PackedRows> rows_behind(const Tensor& weight);

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

}  // namespace menagerie
