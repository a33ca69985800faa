// Copies between tensors of any strides on the device; each is encoded, none waits.
#pragma once

#include <cstddef>

#include "metal/device.h"
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

// Copying and clearing the device's memory, by kernels: copies of Metal's own end the compute
// encoder, and those of 4 GiB and more fail without a word (github.com/pytorch/pytorch, issue
// 124335). Both are encoded on the current context's stream; no bytes: nothing is done. The two
// places must not overlap.
void copy_bytes(const Region& from, const Region& to, size_t bytes);
void clear_bytes(const Region& to, size_t bytes);

}  // namespace menagerie::metal
