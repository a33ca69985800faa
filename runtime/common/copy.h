// Copies between tensors of any strides, and conversions of layout that the kernels need.
#pragma once

#include <span>
#include <vector>

#include "common/tensor.h"

namespace menagerie {

// Return a view of the source with the given sizes, as torch broadcasts: missing axes and axes of
// size one get stride zero.
Tensor broadcast(const Tensor& source, std::span<const int64_t> sizes);

// Return the sizes that the tensors broadcast to.
std::vector<int64_t> broadcast_sizes(std::span<const Tensor> tensors);

// Copy source into target, element by element where the strides differ; the sizes and dtypes must
// be equal. Overlapping memory is refused unless it is the same tensor.
void copy(const Tensor& source, const Tensor& target);

// Assign source to target as torch's copy_ does: broadcast it and convert its dtype.
void assign(const Tensor& source, const Tensor& target);

// Return the axes whose size is not 1, innermost first.
std::vector<int32_t> axes_by_stride(const Tensor& tensor);

// Return the elements as rows of `columns` columns, copied unless they are contiguous.
Tensor as_matrix(const Tensor& tensor, int64_t columns);

// Return whether the elements fill their extent without gaps and without sharing memory, by torch's
// definition (is_non_overlapping_and_dense).
bool is_dense(const Tensor& tensor);

// Return whether the tensors' ranges of memory, first element to last, overlap.
bool overlap(const Tensor& a, const Tensor& b);

void fill_zero(const Tensor& target);

// Return a fresh contiguous tensor of the same values, converted to that dtype.
Tensor contiguous(const Tensor& source, Dtype dtype);
inline Tensor contiguous(const Tensor& source) { return contiguous(source, source.dtype); }

// Return a fresh tensor of the same values and, if the source is dense, the same order of axes.
Tensor clone(const Tensor& source);

// Return the same values in float32, contiguous: few processors compute in half precision, so
// single precision is used and the result is rounded once.
inline Tensor widened(const Tensor& tensor) { return contiguous(tensor, Dtype::kFloat32); }

}  // namespace menagerie
