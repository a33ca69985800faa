// The one interface to the kernel library: heavy operators over tensors of any strides. Callers
// have checked shapes; an implementation honours strides and offsets of every operand, or gathers a
// dense copy. The build chooses the implementation by platform.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/quantised.h"
#include "common/tensor.h"
#include "common/windows.h"

namespace menagerie::kernels {

// The function that is applied to a result before it is stored.
enum class Activation {
  kNone,
  kRelu,
  kClamp,  // alpha, beta: lowest and highest value
  kGeluErf,
  kGeluTanh,
  kSwish,  // x * sigmoid(x)
  kSigmoid,
  kTanh,
  kHardSwish,    // x * clamp(x / 6 + 1/2, 0, 1)
  kHardSigmoid,  // clamp(x / 6 + 1/2, 0, 1)
};

// result = activation(product + bias).
struct Epilogue {
  Activation activation = Activation::kNone;
  float alpha = 0;
  float beta = 0;
};

// Compute output[N, O, ...] = epilogue(input[N, C, ...] * weight + bias). The weight is
// [O, C/groups, ...], or [C, O/groups, ...] if transposed. A constant weight is packed once.
void convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                 const ConvolutionParameters& parameters, const Epilogue& epilogue,
                 const Tensor& output);

// output[..., M, N] = epilogue(alpha * a[..., M, K] * b[..., K, N] + bias[N] + beta * output). All
// have the same number of axes, 2 or 3. A constant b is packed once.
struct Product {
  const Tensor& a;
  const Tensor& b;
  const Tensor* bias = nullptr;
  float alpha = 1;
  float beta = 0;
  Epilogue epilogue = {};
};
void matrix_product(const Product& product, const Tensor& output);

// Compute the same for a weight that represents integers, neither transposed nor in groups: each
// image of the input is rounded to eight bits (`Rounding`), and integers are multiplied and summed,
// so the result is exact but for that rounding. Where the machine has no instructions for it, the
// rounded values are multiplied in float32: the same result but for float32's own rounding.
void rounded_convolution(const Tensor& input, const Tensor& weight, const IntegerWeight& integers,
                         const Tensor* bias, const ConvolutionParameters& parameters,
                         const Epilogue& epilogue, const Tensor& output);

// A depthwise convolution of images behind one that deepens them: an inverted residual block's
// first two (arXiv:1801.04381), or those that sample speech.
struct Expanded {
  const Tensor& input;
  const Tensor& expansion;                // a weight [O, C, height, width]
  std::optional<IntegerWeight> integers;  // that the expansion represents
  const Tensor* expansion_bias;
  ConvolutionParameters expansion_parameters;
  std::span<const int64_t> sizes;  // of the expanded images
  // The factors of their rows before the activation, broadcast to those sizes; the same along
  // channels and columns. Null for none.
  const Tensor* rows;
  Epilogue expansion_epilogue;
  const Tensor& weight;  // [O, 1, height, width]
  const Tensor* bias;
  ConvolutionParameters parameters;  // of the depthwise one
  Epilogue epilogue;
};
// Compute both without passing the expanded image through memory; return false, with nothing done,
// where one after the other is as fast.
bool expanded_depthwise(const Expanded& call, const Tensor& output);

// Compute a rounded product [M, K] * [K, N] with the factors 1 and 0, where b is the weight
// transposed: each row of a is rounded.
void rounded_product(const Product& product, const IntegerWeight& integers, const Tensor& output);

// A plain single-threaded c = a * b over row-major matrices with leading dimensions in elements,
// for use inside parallel regions; b is [N, K] if transposed.
struct SmallProduct {
  int64_t m, n, k;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  bool b_transposed;
  float* c;
  int64_t ldc;
};
void small_product(const SmallProduct& product);

// A right operand b[depth, columns] that is packed once for many products of few rows, for use
// inside parallel regions. Where products may be `coarse`, processors that multiply bfloat16 round
// both operands to it.
class PackedRight {
 public:
  PackedRight(int64_t depth, int64_t columns, bool coarse = false)
      : depth_(depth), columns_(columns), coarse_(coarse) {}

  // Return the number of floats that it takes when packed.
  int64_t size() const;
  // Pack the elements at k * row + j * column, for k < depth and j < columns; one of row and
  // column is 1.
  void pack(const float* b, int64_t row, int64_t column, float* to) const;
  // Compute c[rows, columns] = a * b; the rows of a and c are a_row and c_row floats apart.
  void multiply(const float* a, int64_t a_row, int64_t rows, const float* packed, float* c,
                int64_t c_row) const;

 private:
  int64_t depth_, columns_;
  bool coarse_;
};

// Return the largest of n values; -infinity for none.
float maximum(const float* values, int64_t n);

// Replace each of the n values by e^(value - highest), zero below e^-87, and return their sum. No
// value may exceed highest.
float exponentials(float* values, int64_t n, float highest);

// Return the name and version of the kernel library.
std::string library_version();

}  // namespace menagerie::kernels
