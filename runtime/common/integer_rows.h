// Products in integers: a weight whose rows the file keeps in eight bits (format/FORMAT.md, rule
// 8), and how the other operand is rounded when it is known.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/tensor.h"

namespace menagerie {

// How a slice of numbers is rounded to 0..255: x to floor(x / scale + zero + 1/2), so that nought
// is a whole number and the smallest and largest, or nought beyond them, just fit. A slice with NaN
// or an infinity has the scale NaN, one of less than 1e-34 throughout the scale nought; they are
// rounded to 0.
struct Rounding {
  float scale = 0;
  int32_t zero = 0;

  float back(uint8_t rounded) const {
    return static_cast<float>(static_cast<int32_t>(rounded) - zero) * scale;
  }
};

// What a float32 constant stands for: its row r is the integers of row r times scales[r].
struct IntegerRows {
  Tensor values;              // int8 [rows, columns], in the mapped file
  std::vector<float> scales;  // of each row
  std::vector<float> sums;    // of each row's floats
  std::optional<Rounding> operand;  // of what meets it; none: by what each slice holds
};

// The rows that a weight is a view of.
struct IntegerWeight {
  Tensor values;        // int8, of the weight's sizes, contiguous
  const float* scales;  // of each element of its first axis
  const float* sums;
  const Rounding* operand;  // null: none
};

// The integers behind a weight [rows, ...]; none if it is no dense view of whole rows of such a
// constant.
std::optional<IntegerWeight> integers_behind(const Tensor& weight);

// How numbers from `lowest` to `highest`, or nought beyond them, are rounded.
Rounding rounding_of(float lowest, float highest);

// Rounds slices of `length` numbers that lie one after the other: all as `fixed` says, numbers
// beyond its range to its ends; each by itself without one.
std::vector<Rounding> round_slices(const float* from, int64_t slices, int64_t length,
                                   const Rounding* fixed, uint8_t* to);

// The same and back again, for who computes in floats: a fresh contiguous tensor of the values that
// the integers of each element of the first axis stand for.
Tensor rounded_and_back(const Tensor& tensor, const Rounding* fixed);

}  // namespace menagerie
