// The order of values along an axis.
#pragma once

#include "metal/operands.h"

namespace menagerie::metal {

// For each row the positions of its elements in order, int32 of (rows, length padded to a power of
// two), of which the last stand for nothing. Equal values keep their order.
Tensor order_of(const Tensor& self, const Rows& rows, bool descending);

}  // namespace menagerie::metal
