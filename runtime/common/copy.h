// Copies between tensors of any strides, and conversions of layout that the kernels need.
#pragma once

#include <span>
#include <vector>

#include "common/tensor.h"

namespace menagerie {

// A view of the source with the given sizes, as torch broadcasts: missing and one-sized axes get
// stride zero.
Tensor broadcast(const Tensor& source, std::span<const int64_t> sizes);

// The sizes that tensors are broadcast to.
std::vector<int64_t> broadcast_sizes(std::span<const Tensor> tensors);

// Copies source into target, element by element where the strides differ; the sizes and dtypes must
// be equal. Overlapping memory is refused unless it is the same tensor.
void copy(const Tensor& source, const Tensor& target);

// Assigns source to target as torch's copy_ does: broadcasts it, and converts its dtype.
void assign(const Tensor& source, const Tensor& target);

// Axes of another size than 1, the innermost first.
std::vector<int32_t> axes_by_stride(const Tensor& tensor);

// The elements as rows of so many columns, a copy unless they are contiguous.
Tensor as_matrix(const Tensor& tensor, int64_t columns);

// Whether the elements fill their extent without gaps and without sharing memory, as torch judges
// it (is_non_overlapping_and_dense).
bool is_dense(const Tensor& tensor);

// Whether the memory from the first element to the last of one reaches into that of the other.
bool overlap(const Tensor& a, const Tensor& b);

void fill_zero(const Tensor& target);

// A fresh contiguous tensor of the same values, converted to that dtype.
Tensor contiguous(const Tensor& source, Dtype dtype);
inline Tensor contiguous(const Tensor& source) { return contiguous(source, source.dtype); }

// A fresh tensor of the same values and, where the source is dense, the same order of axes.
Tensor clone(const Tensor& source);

// The same values in float32, contiguous: few processors compute in half precision, so single
// precision does, and the result is rounded once.
inline Tensor widened(const Tensor& tensor) { return contiguous(tensor, Dtype::kFloat32); }

}  // namespace menagerie
