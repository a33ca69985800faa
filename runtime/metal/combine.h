// Values combined with what stands at listed places.
#pragma once

#include "common/scatter.h"
#include "common/tensor.h"

namespace menagerie::metal {

// to[place, ..] = to[place, ..] <reduction> values[i, ..] for each place i of the list, int64 and
// in range, in the list's order where one comes twice. `to` is memory of whole slices of `inner`
// elements, `values` dense. Only storing takes other types than float32 and int64.
void combine_at(const Tensor& to, const Tensor& values, const Tensor& places, int64_t inner,
                Reduction reduction);

// Whether so many threads that each walk so long a list would leave a GPU idle, and the list is
// better sorted first.
bool is_worth_sorting(int64_t threads, int64_t length);

}  // namespace menagerie::metal
