// What a convolution of 1 x 1 makes of rows of an image, of some channels at a time.
#pragma once

#include <memory>
#include <span>

#include "common/kernels.h"
#include "common/x86/kernels.h"

namespace menagerie::x86 {

// Channels that are computed together; `width` floats lie from one pixel's to the next's.
struct Channels {
  int64_t first, count, width;
};

class Expander {
 public:
  virtual ~Expander() = default;
  Expander(const Expander&) = delete;
  Expander& operator=(const Expander&) = delete;

  // All channels, the widest first.
  virtual std::span<const Channels> panels() const = 0;
  // The pixels of row `y` of an image, one after the other.
  virtual void expand(int64_t image, int64_t y, size_t panel, float* to) const = 0;

 protected:
  Expander() = default;
};

// For floats or integers, as the weight is; null where the operands do not lie as the kernels want
// them, or the processor cannot multiply integers.
std::unique_ptr<Expander> expander_of(const kernels::Expanded& call, const Finish& finish);

}  // namespace menagerie::x86
