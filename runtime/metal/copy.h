// Copies between tensors of any strides on the device; each is encoded, none waits.
#pragma once

#include "metal/state.h"

namespace menagerie::metal {

// Copies source into target, which has its sizes, converting the dtype where they differ. The two
// must not overlap.
void copy(const Tensor& source, const Tensor& target);

// Whether a tensor lies in memory as these strides say; those of axes of one element say nothing.
bool has_strides(const Tensor& tensor, std::span<const int64_t> strides);

// The same values in these strides: the tensor itself if it has them, else a copy, which is made
// once for a constant.
Tensor with_strides(const Tensor& tensor, std::span<const int64_t> strides);
Tensor dense(const Tensor& tensor);  // contiguous

}  // namespace menagerie::metal
