// The operations on the sums of a product before they are stored.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace menagerie::portable {

// The locations of a result's rows: a row's number counts through the axes, the last one fastest.
struct ResultRows {
  static constexpr size_t kAxes = 1 + kMaxSpatial;
  std::array<int64_t, kAxes> size{1, 1, 1, 1};
  std::array<int64_t, kAxes> stride{};

  int64_t count() const { return size[0] * size[1] * size[2] * size[3]; }
  std::array<int64_t, kAxes> index(int64_t row) const;
  int64_t offset(int64_t row) const;
};

// A matrix of floats within a tensor.
struct Place {
  float* data = nullptr;
  ResultRows rows = {};
  int64_t column = 0;  // stride from one column to the next

  float* at(int64_t row, int64_t first) const { return data + rows.offset(row) + first * column; }
  // Return the same without the first columns.
  Place from(int64_t first) const {
    return {data == nullptr ? nullptr : data + first * column, rows, column};
  }
};

// result = activation(alpha * sums + bias + beta * result), element by element.
struct Finish {
  Place result = {};
  std::vector<float> bias;  // of all columns; empty for none
  float alpha = 1;
  float beta = 0;
  kernels::Epilogue epilogue = {};

  // Return the part for a group's columns.
  Finish of_columns(int64_t first, int64_t columns) const;
  // Store `columns` sums of one row from column `first` on; the sums are overwritten.
  void store(int64_t row, int64_t first, int64_t columns, float* sums) const;
};

// Fail for tensors that these kernels do not compute with.
void require_floats(const Tensor& tensor);

// Return the elements of a list; none for a null pointer.
std::vector<float> floats_of(const Tensor* list);

// Apply an activation in place.
void activate(const kernels::Epilogue& epilogue, float* values, int64_t count);

}  // namespace menagerie::portable
