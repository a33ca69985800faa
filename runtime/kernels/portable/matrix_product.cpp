// Matrix products over tensors of any strides.
#include <algorithm>
#include <vector>

#include "common/context.h"
#include "common/error.h"
#include "kernels/portable/product.h"

namespace menagerie::portable {
namespace {

// One matrix of a batch.
struct MatrixPart {
  float* data;
  int64_t rows, columns, row, column;

  MatrixPart(const Tensor& tensor, int64_t batch) {
    const int32_t last = tensor.dimensions - 1;
    data = tensor.data<float>() + (last == 2 ? batch * tensor.stride[0] : 0);
    rows = tensor.size[last - 1];
    columns = tensor.size[last];
    row = tensor.stride[last - 1];
    column = tensor.stride[last];
  }

  Place place() const {
    ResultRows along;
    along.size[3] = rows;
    along.stride[3] = row;
    return {data, along, column};
  }
};

PackLeft packing_of(const MatrixPart& left) {
  return [left](int64_t first, int64_t rows, int64_t from, int64_t depth, float* to) {
    const float* begin = left.data + first * left.row + from * left.column;
    pack_rows(begin, rows, left.row, depth, left.column, to);
  };
}

std::shared_ptr<const RightPanels> right_of(const Tensor& b, const MatrixPart& right) {
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
    const MatrixPart right(product.b, batch);
    finish.result = MatrixPart(output, batch).place();
    products.push_back({finish.result.rows.count(), packing_of(MatrixPart(product.a, batch)),
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
  thread_local std::vector<float> packed;
  const PackedRight right(p.k, p.n);
  packed.resize(static_cast<size_t>(right.size()));
  right.pack(p.b, p.b_transposed ? 1 : p.ldb, p.b_transposed ? p.ldb : 1, packed.data());
  right.multiply(p.a, p.lda, p.m, packed.data(), p.c, p.ldc);
}

std::string library_version() { return "portable kernels"; }

using namespace menagerie::portable;

int64_t PackedRight::size() const { return depth_ * panels(columns_, kTileColumns) * kTileColumns; }

void PackedRight::pack(const float* b, int64_t row, int64_t column, float* to) const {
  for (int64_t begin = 0; begin < columns_; begin += kTileColumns) {
    pack_small_panel(b + begin * column, depth_, std::min(kTileColumns, columns_ - begin), row,
                     column, to + begin * depth_);
  }
}

void PackedRight::multiply(const float* a, int64_t a_row, int64_t rows, const float* packed,
                           float* c, int64_t c_row) const {
  thread_local std::vector<float> left;
  left.resize(static_cast<size_t>(depth_ * kTileRows));
  for (int64_t first = 0; first < rows; first += kTileRows) {
    const int64_t here = std::min(kTileRows, rows - first);
    pack_rows(a + first * a_row, here, a_row, depth_, 1, left.data());
    for (int64_t begin = 0; begin < columns_; begin += kTileColumns) {
      float sums[kTileRows * kTileColumns] = {};
      multiply_tile(depth_, left.data(), packed + begin * depth_, sums, kTileColumns);
      const int64_t count = std::min(kTileColumns, columns_ - begin);
      for (int64_t i = 0; i < here; ++i) {
        std::copy_n(sums + i * kTileColumns, count, c + (first + i) * c_row + begin);
      }
    }
  }
}

}  // namespace menagerie::kernels
