// A weight that the file keeps as integers of eight or four bits with a scale for each row, or each
// group of a row's numbers (format/FORMAT.md, rule 8); the library wants it as float32.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/integer_rows.h"
#include "common/safetensors.h"

namespace menagerie {

class QuantisedWeight {
 public:
  // Whether the tensor's type can hold such integers; whether it does, the constructor says.
  static bool may_be(Dtype stored) { return stored == Dtype::kInt8 || stored == Dtype::kUInt8; }

  // Fails with the name and the broken rule.
  QuantisedWeight(const SafeTensors& file, const std::string& name);

  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const { return rows_ * columns_; }
  // Each integer times its scale, row by row; exact. `out` has room for all elements.
  void widen(std::span<float> out) const;
  // Whether products may round their other operand: a scale is a whole row's, and there is one list
  // of them.
  bool is_by_row() const { return by_row_; }
  // The integers themselves; `view` gives a part of the file as a storage.
  using View = std::function<std::shared_ptr<Storage>(std::span<const std::byte>)>;
  std::shared_ptr<const IntegerRows> integers(const View& view) const;

 private:
  std::vector<int64_t> unpacked_shape(const SafeTensors& file, const std::string& name) const;
  int64_t bytes_in_row() const { return packed_ ? (columns_ + 1) / 2 : columns_; }
  std::optional<Rounding> rounding_beside(const SafeTensors& file, const std::string& name) const;
  float value(int64_t row, int64_t column) const;

  bool by_row_ = false;
  bool packed_;  // two of four bits in a byte, the first in its lower half, each plus eight
  std::vector<int64_t> shape_;
  int64_t rows_ = 0, columns_ = 0, group_ = 0;
  std::span<const std::byte> values_;
  std::span<const std::byte> scales_;  // bfloat16
  std::optional<Rounding> operand_;    // of what meets the weight in a product
};

}  // namespace menagerie
