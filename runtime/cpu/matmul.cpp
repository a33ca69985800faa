// Matrix products, and linear layers with a fused operation; the kernel library computes them.
#include <algorithm>

#include "common/copy.h"
#include "common/operators.h"
#include "common/shim_support.h"
#include "cpu/epilogue.h"
#include "cpu/work.h"
#include "kernels/kernels.h"

using namespace menagerie;

namespace {

// One matrix of a batch.
struct StridedMatrix {
  int64_t offset, row, column;

  StridedMatrix(const Tensor& tensor, int64_t batch) {
    const int32_t last = tensor.dimensions - 1;
    offset = last == 2 ? batch * tensor.stride[0] : 0;
    row = tensor.stride[last - 1];
    column = tensor.stride[last];
  }
  int64_t at(int64_t i, int64_t j) const { return offset + i * row + j * column; }
};

// Unsigned for integers, because wrapping around is defined there.
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

// A value that is multiplied by a beta of zero may be uninitialised.
template <class T>
void multiply_plainly(const Tensor& out, const Tensor& a, const Tensor& b, double beta,
                      double alpha) {
  const Sum<T> product_factor = factor_of<T>(alpha);
  const Sum<T> own_factor = factor_of<T>(beta);
  const int32_t last = out.dimensions - 1;
  const int64_t batches = last == 2 ? out.size[0] : 1;
  for (int64_t batch = 0; batch < batches; ++batch) {
    const StridedMatrix to(out, batch), left(a, batch), right(b, batch);
    for (int64_t i = 0; i < out.size[last - 1]; ++i) {
      for (int64_t j = 0; j < out.size[last]; ++j) {
        Sum<T> sum = 0;
        for (int64_t k = 0; k < a.size[last]; ++k) {
          sum += static_cast<Sum<T>>(a.data<T>()[left.at(i, k)]) *
                 static_cast<Sum<T>>(b.data<T>()[right.at(k, j)]);
        }
        T& element = out.data<T>()[to.at(i, j)];
        if (a.size[last] != 0) sum *= product_factor;  // no products: zero even if infinite
        if (beta != 0) sum += static_cast<Sum<T>>(element) * own_factor;
        element = static_cast<T>(sum);
      }
    }
  }
}

// Compute products that the kernel library does not, because of their dtype or because their sums
// are empty: out = alpha * a * b + beta * self. Sums of integers wrap around. `self` broadcasts to
// out; null stands for zero.
void plain_product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self,
                   double beta, double alpha) {
  require(out.dtype != Dtype::kBool, "truth values have no products: ", a);
  if (self != nullptr) assign(*self, out);
  with_type(out.dtype,
            [&]<class T>(T) { multiply_plainly<T>(out, a, b, self == nullptr ? 0 : beta, alpha); });
}

// Return whether `self`, broadcast to the output, is one number per column and thus a bias.
bool is_bias(const Tensor& self, const Tensor& out) {
  const int32_t n = self.dimensions;
  if (n == 0 || self.size[n - 1] != out.size[out.dimensions - 1] || self.stride[n - 1] != 1) {
    return false;
  }
  for (int32_t axis = 0; axis < n - 1; ++axis) {
    if (self.size[axis] != 1 && self.stride[axis] != 0) return false;
  }
  return self.dtype == out.dtype;
}

Tensor as_vector(const Tensor& self) {
  Tensor vector = self;
  vector.dimensions = 1;
  vector.size[0] = self.size[self.dimensions - 1];
  vector.stride[0] = 1;
  return vector;
}

// Compute in integers where b represents them.
void product(const kernels::Product& p, const Tensor& out) {
  const Work work = work_of_product(p.a, p.b, out);
  if (p.b.dimensions == 2 && p.alpha == 1 && p.beta == 0) {
    if (const auto integers = integers_behind(with_axis_moved(p.b, 0, 1))) {
      return kernels::rounded_product(p, *integers, out);
    }
  }
  kernels::matrix_product(p, out);
}

// Return epilogue(x[..., K] * weight[N, K]^T + bias[N]).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor* bias,
              const kernels::Epilogue& epilogue) {
  require(x.dimensions >= 1 && weight.dimensions == 2 && x.dtype == weight.dtype &&
              x.size[x.dimensions - 1] == weight.size[1],
          "input ", x, " and weight ", weight, " do not fit");
  require(bias == nullptr ||
              (bias->dimensions == 1 && bias->size[0] == weight.size[0] && bias->dtype == x.dtype),
          "the bias must be a list of ", weight.size[0], " elements");
  Tensor dense_bias;
  if (bias != nullptr && bias->stride[0] != 1) {
    dense_bias = contiguous(*bias);
    bias = &dense_bias;
  }
  require(!x.empty() && !weight.empty(),
          "an empty linear layer with a fused operation is not supported");
  Extents sizes = x.size;
  sizes[x.dimensions - 1] = weight.size[0];
  const Tensor output =
      empty_contiguous(x.dtype, {sizes.data(), static_cast<size_t>(x.dimensions)});
  product({as_matrix(x, weight.size[1]), with_axis_moved(weight, 0, 1), bias, 1, 0, epilogue},
          as_matrix(output, weight.size[0]));
  return output;
}

}  // namespace

// The factors stay double until the dtype is known: integers and float64 are computed with exactly
// these values.
void backend::multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self,
                       double beta, double alpha) {
  if (is_half(out.dtype)) {
    const Tensor result = empty_contiguous(Dtype::kFloat32, out.sizes());
    const Tensor addend = self == nullptr ? Tensor() : widened(*self);
    multiply(result, widened(a), widened(b), self == nullptr ? nullptr : &addend, beta, alpha);
    return menagerie::assign(result, out);
  }
  if (out.dtype != Dtype::kFloat32 || a.empty()) {
    return plain_product(out, a, b, self, beta, alpha);
  }
  if (self != nullptr && beta == 1 && alpha == 1 && is_bias(*self, out)) {
    const Tensor bias = as_vector(*self);
    return product({a, b, &bias}, out);
  }
  const auto product_factor = static_cast<float>(alpha);
  const auto own_factor = self == nullptr ? 0.0F : static_cast<float>(beta);
  if (own_factor == 0) return product({a, b, nullptr, product_factor}, out);
  menagerie::assign(*self, out);
  product({a, b, nullptr, product_factor, own_factor}, out);
}

MENAGERIE_SHIM aoti_torch_cpu__linear_pointwise(AtenTensorHandle X, AtenTensorHandle W,
                                                AtenTensorHandle* B, const char* attr,
                                                const double** scalars, int64_t scalars_len_,
                                                const char** algorithm, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    *ret0 = to_handle(
        linear(operand(X), operand(W), optional_operand(B),
               activation_named(attr, list(scalars, scalars_len_), word_or_none(algorithm))));
  });
}
