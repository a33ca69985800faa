// Operators that the host computes on every device: the sizes of their results depend on values, so
// that the host has to look at them anyway, or they are too rare for kernels of their own. All
// operands lie where the host may read them; results lie beside the first operand.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/tensor.h"
#include "common/windows.h"

namespace menagerie::host {

// In the order of torch's sorts: NaN is the largest value.
template <class T>
bool is_less(T a, T b) {
  return a < b || (b != b && a == a);
}

// An uninitialised contiguous tensor on the device of another.
Tensor empty_beside(const Tensor& other, Dtype dtype, std::span<const int64_t> sizes);

// Where a tensor is not zero: one int64 list of positions an axis, all of the same length.
std::vector<Tensor> places(const Tensor& self);
// The same as a matrix [found, axes], laid out as torch does it: one axis after another.
Tensor nonzero(const Tensor& self);

// The elements at which a mask, broadcast with them, is true.
Tensor masked_select(const Tensor& self, const Tensor& mask);
// A copy with those elements replaced by the source's first ones, in order.
Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source);

// Rows in the order that int64 places within each row say.
Tensor in_order(const Tensor& rows, const Tensor& order);

// For each value its place in a sorted row: the first whose element is not less, or, from the
// right, the first whose element is greater. NaN counts as the largest value. The rows are those of
// the value's leading axes, or one for all.
Tensor search(const Tensor& sorted, const Tensor& values, bool from_right, bool narrow);
// What `right` and the word `side`, empty if absent, say together.
bool from_right(bool right, std::string_view side);

// The k-th smallest value of each row, from 1, and where it stood. The axis becomes 1, or is left
// out.
ValuesAndIndices kth_value(const Tensor& self, int64_t k, int64_t dim, bool keep_axis);

// The lower of the middle values of all elements; NaN if there is one, or no element.
Tensor median(const Tensor& self);

// Each position so many times as its number says; fails if there is a negative one.
Tensor repeat_interleave(const Tensor& repeats);

// The greatest common divisor of integers, broadcast; of zeros it is zero.
Tensor gcd(const Tensor& a, const Tensor& b);
// Powers of integers, broadcast; they wrap around, and negative ones are cut to integers.
Tensor power(const Tensor& a, const Tensor& b);
Tensor power(double base, const Tensor& exponents);

// output = input * weight + bias by plain loops, of integers or float64, which kernel libraries do
// not compute. Sums of integers wrap around.
void convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& p, const Tensor& output);

// Distances [..., P, R] between the rows of a [..., P, M] and b [..., R, M] by the p-norm.
Tensor distances(const Tensor& a, const Tensor& b, double p);

}  // namespace menagerie::host
