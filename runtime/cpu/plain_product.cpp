#include "cpu/plain_product.h"

#include <type_traits>

#include "common/copy.h"
#include "common/element.h"
#include "common/error.h"

namespace menagerie {
namespace {

// One matrix of a batch.
struct Matrix {
  int64_t offset, row, column;

  Matrix(const Tensor& tensor, int64_t batch) {
    const int32_t last = tensor.dimensions - 1;
    offset = last == 2 ? batch * tensor.stride[0] : 0;
    row = tensor.stride[last - 1];
    column = tensor.stride[last];
  }
  int64_t at(int64_t i, int64_t j) const { return offset + i * row + j * column; }
};

// Unsigned for whole numbers, because sums that wrap around are defined there.
template <class T>
using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

template <class T>
Sum<T> factor_of(double factor) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(whole_factor(factor));
  } else {
    return factor;
  }
}

// What is multiplied by a beta of nought may be uninitialised.
template <class T>
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, double beta, double alpha) {
  const Sum<T> product_factor = factor_of<T>(alpha);
  const Sum<T> own_factor = factor_of<T>(beta);
  const int32_t last = out.dimensions - 1;
  const int64_t batches = last == 2 ? out.size[0] : 1;
  for (int64_t batch = 0; batch < batches; ++batch) {
    const Matrix to(out, batch), left(a, batch), right(b, batch);
    for (int64_t i = 0; i < out.size[last - 1]; ++i) {
      for (int64_t j = 0; j < out.size[last]; ++j) {
        Sum<T> sum = 0;
        for (int64_t k = 0; k < a.size[last]; ++k) {
          sum += static_cast<Sum<T>>(a.data<T>()[left.at(i, k)]) *
                 static_cast<Sum<T>>(b.data<T>()[right.at(k, j)]);
        }
        T& element = out.data<T>()[to.at(i, j)];
        if (a.size[last] != 0) sum *= product_factor;  // no products: nought, though it be infinite
        if (beta != 0) sum += static_cast<Sum<T>>(element) * own_factor;
        element = static_cast<T>(sum);
      }
    }
  }
}

}  // namespace

void plain_product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self,
                   double beta, double alpha) {
  require(out.dtype != Dtype::kBool, "truth values have no products: ", a);
  if (self != nullptr) assign(*self, out);
  with_type(out.dtype,
            [&]<class T>(T) { multiply<T>(out, a, b, self == nullptr ? 0 : beta, alpha); });
}

}  // namespace menagerie
