// Operands in the forms that the runtime's own kernels take, and copies between tensors of any
// strides on the device; each is encoded, none waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "metal/state.h"

namespace menagerie::metal {

// Copies source into target, which has its sizes, converting the dtype where they differ. The two
// must not overlap.
void copy(const Tensor& source, const Tensor& target);

// Whether a tensor is stored as these strides say; those of axes of one element say nothing.
bool has_strides(const Tensor& tensor, std::span<const int64_t> strides);

// The same values in these strides: the tensor itself if it has them, else a copy, which is made
// once for a constant.
Tensor with_strides(const Tensor& tensor, std::span<const int64_t> strides);
Tensor dense(const Tensor& tensor);  // contiguous

// A contiguous tensor seen as matrices [B, M, N] of as many elements.
Tensor matrices_of(const Tensor& tensor, int64_t batch, int64_t rows, int64_t columns);

// Copying and clearing the device's memory, by kernels: copies of Metal's own end the compute
// encoder, and those of 4 GiB and more fail without a word (github.com/pytorch/pytorch, issue
// 124335). Both are encoded on the current context's stream; no bytes: nothing is done. The two
// places must not overlap.
void copy_bytes(const Region& from, const Region& to, size_t bytes);
void clear_bytes(const Region& to, size_t bytes);

// The type in Metal, as the names of kernels end with it; fails for float64, which Metal lacks.
std::string metal_name(Dtype dtype);

// The values, contiguous and in that dtype.
Tensor converted(const Tensor& tensor, Dtype dtype);

// In which of two types a kernel computes with whole numbers and halves: float32 or int64.
Dtype wide(Dtype dtype);

// A contiguous tensor seen as [outer, length, inner] around an axis.
struct Rows {
  int64_t outer = 1;
  int64_t length = 1;
  int64_t inner = 1;

  int64_t count() const { return outer * inner; }
};
Rows rows_along(const Tensor& tensor, int32_t axis);

// For each row the positions of its elements in order, int32 of (rows, length padded to a power of
// two), of which the last stand for nothing. Equal values keep their order.
Tensor order_of(const Tensor& self, const Rows& rows, bool descending);

// An extent as kernels over images count it; fails if 32 bits do not hold it.
int32_t narrow(int64_t extent);

// One thread an element; fails if a kernel cannot count so many.
uint64_t threads_for(const Tensor& tensor);
uint64_t threads_for(int64_t elements);

}  // namespace menagerie::metal
