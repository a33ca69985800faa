// Matrix products over tensors of any strides.
#include <algorithm>

#include "common/context.h"
#include "common/error.h"
#include "common/portable_kernels/product.h"

namespace menagerie::portable {
namespace {

// One matrix of a batch.
struct Matrix {
  float* data;
  int64_t rows, columns, row, column;

  Matrix(const Tensor& tensor, int64_t batch) {
    const int32_t last = tensor.dimensions - 1;
    data = tensor.data<float>() + (last == 2 ? batch * tensor.stride[0] : 0);
    rows = tensor.size[last - 1];
    columns = tensor.size[last];
    row = tensor.stride[last - 1];
    column = tensor.stride[last];
  }

  Place place() const {
    Rows along;
    along.size[3] = rows;
    along.stride[3] = row;
    return {data, along, column};
  }
};

// Packs rows of elements at i * row + k * column as panels [depth, kTileRows], as PackLeft says.
void pack_rows(const float* data, int64_t rows, int64_t row, int64_t depth, int64_t column,
               float* to) {
  for (int64_t begin = 0; begin < rows; begin += kTileRows, to += depth * kTileRows) {
    const int64_t here = std::min(kTileRows, rows - begin);
    if (here < kTileRows) std::fill(to, to + depth * kTileRows, 0.0F);
    for (int64_t i = 0; i < here; ++i) {
      const float* source = data + (begin + i) * row;
      for (int64_t k = 0; k < depth; ++k) to[k * kTileRows + i] = source[k * column];
    }
  }
}

PackLeft packing_of(const Matrix& left) {
  return [left](int64_t first, int64_t rows, int64_t from, int64_t depth, float* to) {
    const float* begin = left.data + first * left.row + from * left.column;
    pack_rows(begin, rows, left.row, depth, left.column, to);
  };
}

std::shared_ptr<const RightPanels> right_of(const Tensor& b, const Matrix& right) {
  const auto make = [&] {
    return std::make_shared<RightPanels>(right.data, right.rows, right.columns, right.row,
                                         right.column);
  };
  if (!b.storage->is_constant()) return make();
  Key key("right panels");
  key.add(static_cast<const void*>(right.data)).add(right.rows).add(right.columns);
  key.add(right.row).add(right.column);
  return Context::current().kernels().get<RightPanels>(key, make);
}

}  // namespace
}  // namespace menagerie::portable

namespace menagerie::kernels {

using namespace menagerie::portable;

void matrix_product(const Product& product, const Tensor& output) {
  for (const Tensor* tensor : {&product.a, &product.b, &output}) require_floats(*tensor);
  const int64_t batches = output.dimensions == 3 ? output.size[0] : 1;
  Finish finish{.bias = floats_of(product.bias),
                .alpha = product.alpha,
                .beta = product.beta,
                .epilogue = product.epilogue};
  std::vector<BlockedProduct> products;
  for (int64_t batch = 0; batch < batches; ++batch) {
    const Matrix right(product.b, batch);
    finish.result = Matrix(output, batch).place();
    if (product.epilogue.other != nullptr) {
      finish.other = Matrix(*product.epilogue.other, batch).place();
    }
    products.push_back({finish.result.rows.count(), packing_of(Matrix(product.a, batch)),
                        right_of(product.b, right), finish});
  }
  run(products);
}

void rounded_product(const Product& product, const IntegerWeight& integers, const Tensor& output) {
  const Tensor a = rounded_and_back(product.a, integers.operand);
  matrix_product({a, product.b, product.bias, product.alpha, product.beta, product.epilogue},
                 output);
}

void small_product(const SmallProduct& p) {
  thread_local std::vector<float> left, right, sums;
  const int64_t width = panels(p.n, kTileColumns) * kTileColumns;
  const int64_t height = panels(p.m, kTileRows) * kTileRows;
  right.resize(static_cast<size_t>(p.k * width));
  left.resize(static_cast<size_t>(p.k * kTileRows));
  sums.resize(static_cast<size_t>(kTileRows * width));
  const int64_t row = p.b_transposed ? 1 : p.ldb;
  const int64_t column = p.b_transposed ? p.ldb : 1;
  for (int64_t begin = 0; begin < width; begin += kTileColumns) {
    pack_panel(p.b + begin * column, p.k, std::min(kTileColumns, p.n - begin), row, column,
               &right[begin * p.k]);
  }
  for (int64_t first = 0; first < height; first += kTileRows) {
    const int64_t here = std::min(kTileRows, p.m - first);
    pack_rows(p.a + first * p.lda, here, p.lda, p.k, 1, left.data());
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (int64_t begin = 0; begin < width; begin += kTileColumns) {
      multiply_tile(p.k, left.data(), &right[begin * p.k], &sums[begin], width);
    }
    for (int64_t i = 0; i < here; ++i) {
      float* to = p.c + (first + i) * p.ldc;
      const float* from = &sums[i * width];
      for (int64_t j = 0; j < p.n; ++j) {
        to[j] = p.alpha * from[j] + (p.accumulate ? to[j] : 0.0F);
      }
    }
  }
}

std::string library_version() { return "portable kernels"; }

}  // namespace menagerie::kernels
