// Operators that the host computes on every device: their results' sizes depend on values, which
// the host has to read anyway, or they are too rare for kernels of their own. All operands are in
// memory that the host may read; results are on the first operand's device.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/tensor.h"
#include "common/windows.h"

namespace menagerie::host {

// Compare in the order of torch's sorts: NaN is the largest value.
template <class T>
bool is_less(T a, T b) {
  return a < b || (b != b && a == a);
}

// Return an uninitialised contiguous tensor on the device of another.
Tensor empty_beside(const Tensor& other, Dtype dtype, std::span<const int64_t> sizes);

// Return the positions of nonzero elements: one int64 list per axis, all of the same length.
std::vector<Tensor> places(const Tensor& self);
// Return the same as a matrix [found, axes], laid out as in torch: one axis after another.
Tensor nonzero(const Tensor& self);

// Return the elements at which a mask, broadcast with them, is true.
Tensor masked_select(const Tensor& self, const Tensor& mask);
// Return a copy with those elements replaced by the source's first ones, in order.
Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source);

// Return rows in the order that int64 positions within each row give.
Tensor in_order(const Tensor& rows, const Tensor& order);

// Return each value's position in a sorted row: the first whose element is not less or, from the
// right, the first whose element is greater. NaN counts as the largest value. The rows are those of
// the value's leading axes, or one for all.
Tensor search(const Tensor& sorted, const Tensor& values, bool from_right, bool narrow);
// Return the side that `right` and the word `side`, empty if absent, select together.
bool from_right(bool right, std::string_view side);

// Return the k-th smallest value of each row, counted from 1, and its position. The axis gets size
// 1 or is removed.
ValuesAndIndices kth_value(const Tensor& self, int64_t k, int64_t dim, bool keep_axis);

// Return the lower of the middle values of all elements; NaN if any is NaN or there are none.
Tensor median(const Tensor& self);

// Return each position as many times as its number says; fail if a number is negative.
Tensor repeat_interleave(const Tensor& repeats);

// Return the greatest common divisor of integers, broadcast; for zeros it is zero.
Tensor gcd(const Tensor& a, const Tensor& b);
// Return powers of integers, broadcast; they wrap around, and fractions are truncated.
Tensor power(const Tensor& a, const Tensor& b);
Tensor power(double base, const Tensor& exponents);

// Compute output = input * weight + bias by plain loops, for integers or float64, which kernel
// libraries do not support. Sums of integers wrap around.
void convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& p, const Tensor& output);

// Return distances [..., P, R] between the rows of a [..., P, M] and b [..., R, M] by the p-norm.
Tensor distances(const Tensor& a, const Tensor& b, double p);

}  // namespace menagerie::host
