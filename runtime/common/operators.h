// What a device computes behind the shims that all devices share (common/operators/). Operands have
// been checked, and lie as they will; a result is on the device.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "common/indices.h"
#include "common/tensor.h"
#include "common/windows.h"

namespace menagerie::backend {

// out = alpha * a * b + beta * self over tensors [.., M, N] of one dtype; out has elements. `self`
// broadcasts to out; null: zero.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self, double beta,
              double alpha);

// The result of a convolution, uninitialised, in the layout that the device's generated code counts
// on.
Tensor empty_convolution(const Tensor& input, const Tensor& weight, std::span<const int64_t> sizes);
// output = input * weight + bias, none of them empty; the bias may be null. The output may be a
// part of such a result. Output padding is less than the stride.
void convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& parameters, const Tensor& output);

// Averages, divided by the divisor or else by the number of elements; of integers cut to integers,
// which not every device has.
Tensor average(const Tensor& self, const Windows& windows, const PooledGeometry& geometry,
               bool count_padding, std::optional<int64_t> divisor);
// Largest values; indices count the elements of the plane. NaN wins, and of several the last.
ValuesAndIndices largest(const Tensor& self, const Windows& windows,
                         const PooledGeometry& geometry);

// The first `kept` of each row in order, in results of these strides. NaN counts as the largest
// value; equal values keep the order in which they stand.
ValuesAndIndices first_in_order(const Tensor& self, int32_t axis, int64_t kept, bool descending,
                                const Extents& strides);

enum class Scan { kSum, kProduct, kLogSumExp };
// Each element combined with all before it along an axis, contiguous.
Tensor scanned(Scan scan, const Tensor& self, int32_t axis, Dtype dtype);
// The largest or smallest value so far: NaN is best, and of equal values the last; contiguous.
ValuesAndIndices extremes_so_far(const Tensor& self, int32_t axis, bool largest);

// The elements that the lists name; contiguous.
Tensor read_at(const Tensor& self, const Indices& indices);
// A copy with these elements replaced, or added to. Where lists name an element twice, the last
// value stays.
Tensor put_at(const Tensor& self, const Indices& indices, const Tensor& values, bool accumulate);

// A tensor without axes of one value, converted as C++ does it.
Tensor one_value(Dtype dtype, double value);
void scatter(const Scatter& scatter);

}  // namespace menagerie::backend
