// What follows a product within the kernel that computes it: activations, factors, and one more
// operand, in single precision and before the one rounding.
#pragma once

#include <cstdint>
#include <span>

#include "common/tensor.h"
#include "metal/device.h"
#include "metal/dispatch.h"

namespace menagerie::metal {

#include "metal/kernels/steps.h"

// A product's: of a result [B, M, N], or of images [N, C, H, W].
struct Finishing {
  Finish finish{};
  Region other{};  // without a buffer: no step reads it
  Beside beside{.width = 1};

  bool is_nothing() const { return finish.count == 0; }
  // Whether a kernel may run again once its result is there.
  bool reads(const Region& result) const { return other.buffer == result.buffer; }
  // The same where the kernel computes a column of the result as if it were a row.
  Finishing turned() const;
};

// Steps as kernels/steps.h numbers them, each with two numbers; `other` broadcasts to the sizes of
// a result of two or three axes, or of four, an image's; null: there is none. Fails for a step that
// there is not, for too many, and for one that reads an operand where there is none.
Finishing finishing_of(std::span<const int64_t> steps, std::span<const double> low,
                       std::span<const double> high, const Tensor* other, const Tensor& result);

// One step, by the other operand.
Finishing multiplication_by(const Region& other, const Beside& beside);

// The last three arguments of a product's kernel; `unread` stands for an operand that is not there.
void add_finish(Arguments& arguments, const Finishing& finishing, const Region& unread);

// The steps by themselves, over a dense [B, M, N] or images in place.
void finish_elements(const Region& values, Dtype dtype, int64_t batch, int64_t rows,
                     int64_t columns, const Finishing& finishing);

}  // namespace menagerie::metal
