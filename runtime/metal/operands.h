// Operands in the forms that the runtime's own kernels take.
#pragma once

#include <cstdint>
#include <string>

#include "metal/copy.h"
#include "metal/state.h"

namespace menagerie::metal {

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
