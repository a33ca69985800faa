// What a device computes behind the shims that all devices share (common/operators/). Operands have
// been checked and may have any strides; a result is on the device.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "common/indices.h"
#include "common/tensor.h"
#include "common/windows.h"

namespace menagerie::backend {

// Compute out = alpha * a * b + beta * self over tensors [.., M, N] of one dtype; out has elements.
// `self` broadcasts to out; null stands for zero.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self, double beta,
              double alpha);

// Return an uninitialised result of a convolution, in the layout that the device's generated code
// expects.
Tensor empty_convolution(const Tensor& input, const Tensor& weight, std::span<const int64_t> sizes);
// Compute output = input * weight + bias, none of them empty; the bias may be null. The output may
// be a part of such a result. Output padding is less than the stride.
void convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& parameters, const Tensor& output);

// Return averages: sums divided by the divisor, else by the number of elements. Averages of
// integers are truncated, which not every device supports.
Tensor average(const Tensor& self, const Windows& windows, const PooledGeometry& geometry,
               bool count_padding, std::optional<int64_t> divisor);
// Return maxima; indices count the plane's elements. NaN wins, and of equal values the last.
ValuesAndIndices largest(const Tensor& self, const Windows& windows,
                         const PooledGeometry& geometry);

// Return the first `kept` elements of each row in order, in results of these strides. NaN counts as
// the largest value; equal values keep their order.
ValuesAndIndices first_in_order(const Tensor& self, int32_t axis, int64_t kept, bool descending,
                                const Extents& strides);

enum class Scan { kSum, kProduct, kLogSumExp };
// Combine each element with all before it along an axis; the result is contiguous.
Tensor scanned(Scan scan, const Tensor& self, int32_t axis, Dtype dtype);
// Return the maximum or minimum so far: NaN wins, and of equal values the last; contiguous.
ValuesAndIndices extremes_so_far(const Tensor& self, int32_t axis, bool largest);

// Return the elements that the lists select; contiguous.
Tensor read_at(const Tensor& self, const Indices& indices);
// Return a copy with these elements replaced, or added to. Where lists select an element twice, the
// last value stays.
Tensor put_at(const Tensor& self, const Indices& indices, const Tensor& values, bool accumulate);

// Return a tensor without axes of one value, converted as in C++.
Tensor one_value(Dtype dtype, double value);
void scatter(const Scatter& scatter);

}  // namespace menagerie::backend
