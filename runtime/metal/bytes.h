// Copying and clearing the device's memory, by kernels: copies of Metal's own end the compute
// encoder, and those of 4 GiB and more fail without a word (github.com/pytorch/pytorch, issue
// 124335).
#pragma once

#include <cstddef>

#include "metal/device.h"

namespace menagerie::metal {

// Both are encoded on the current context's stream; no bytes: nothing is done. The two places must
// not overlap.
void copy_bytes(const Region& from, const Region& to, size_t bytes);
void clear_bytes(const Region& to, size_t bytes);

}  // namespace menagerie::metal
