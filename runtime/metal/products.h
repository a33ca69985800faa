// Matrix products and convolutions with what follows them, tile by tile (kernels/tiles.h).
#pragma once

#include <cstdint>
#include <string>

#include "common/tensor.h"
#include "common/windows.h"
#include "metal/epilogue.h"

namespace menagerie::metal {

// As the kernels have them.
struct ProductExtents {
  uint32_t m, n, k;
  float alpha, beta;
};
struct MatrixStrides {
  uint32_t batch = 0, row = 0, column = 0;
};
// As kernels count elements: fails from 2^32 on.
uint32_t counted(int64_t elements);
// Those of [B, M, N]; zero along an axis of one element.
MatrixStrides strides_of(const Tensor& matrices);
// The matrices, or a copy if neither rows nor columns lie in one piece: a group of threads reads
// them several times, and in vectors.
Tensor in_pieces(const Tensor& matrices);

// Runs <function>_<dtype>_<side of a tile> of a file for each tile of [batch, m, n].
void dispatch_tiles(const std::string& file, const std::string& function,
                    const Arguments& arguments, const ProductExtents& p, int64_t batch,
                    Dtype dtype);

// What a product adds to its sums, and what follows them.
struct ProductTerms {
  const Tensor* addend = nullptr;  // [1 or B, 1 or M, 1 or N], null: none
  float alpha = 1, beta = 0;
  const Finishing& finishing;
};
MatrixStrides strides_of_addend(const ProductTerms& terms);  // zero without one

// An addend as a kernel takes it.
struct Addend {
  Region values;
  MatrixStrides strides;
};
// Runs matrix_product's <function> so, or with the terms in parts that one more kernel adds, as the
// device is busier, and `in_parts` allows. `arguments` begin with `out` and end before those of the
// finish.
void dispatch_product(const std::string& function, Arguments arguments, const Region& out,
                      const Addend& addend, const ProductExtents& p, int64_t batch, Dtype dtype,
                      const Finishing& finishing, bool in_parts = true);

// Whether it runs the two, of which the second reads what all groups of the first have written.
bool is_split(const ProductExtents& p, int64_t batch);

// Two a term.
double operations_of(int64_t batch, int64_t m, int64_t n, int64_t k);
// Whether work is so large that an emulated device's library computes it.
bool is_for_library(double operations);

// Encodes out[B, M, N] = finish(alpha * a[1 or B, M, K] * b[1 or B, K, N] + beta * addend) on the
// current context's stream. `out` is contiguous and not empty, K not zero; the others lie as they
// will.
void product(const Tensor& out, const Tensor& a, const Tensor& b, const ProductTerms& terms);

// out = finish(alpha * a * b + beta * self) over floating tensors [.., M, N] of one dtype; out has
// elements. `self` broadcasts to out; null: zero.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self, float beta,
              float alpha, const Finishing& finishing);

// output = finish(factor input * weight + bias), none of them empty. The factor [N or 1, C, 1, 1],
// which only images have, and the bias may be null.
void convolve(const Tensor& input, const Tensor* factor, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& parameters, const Tensor& output,
              const Finishing& finishing);

// An image of one axis, [N, C, W], as [N, C, 1, W].
Tensor as_image(const Tensor& tensor);

// Whether a depthwise convolution reads twice its channels, the first half times the other one's
// sigmoid; what finishes it beside is not zero at the places that count as zero.
inline bool is_gated(const Tensor& input, const Tensor& weight, int64_t groups) {
  return weight.size[0] == groups && weight.size[1] == 1 && input.size[1] == 2 * groups;
}

// A weight that the bundle keeps as integers, as packed_product.metal takes it: these are
// multiplied as they are, and no floats are made of them.
struct PackedWeight {
  enum class Form { kEight, kFour, kAbove };  // as there
  Form form = Form::kEight;
  Region integers, scales, offsets;  // offsets: only of kAbove
  int64_t rows = 0, columns = 0;
  int64_t row_bytes = 0;  // of the integers
  int64_t groups = 0;     // of a row: all of it, or each of a power of two of numbers
};

// out[B, M, N] = finish(alpha * x[B, M, K] * weight^T + beta * addend), where out is contiguous and
// not empty; x has any strides, and may be one for all of the batch.
void multiply_packed(const Tensor& out, const Tensor& x, const PackedWeight& weight,
                     const ProductTerms& terms);

// The same of a or b, whichever stands for such integers; false: neither does, and nothing is done.
bool multiply_if_packed(const Tensor& out, const Tensor& a, const Tensor& b,
                        const ProductTerms& terms);

}  // namespace menagerie::metal
