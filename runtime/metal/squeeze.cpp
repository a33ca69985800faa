// A squeeze and an excitation in one kernel, where lowering found them
// (transforms/passes/metal/fuse_epilogues.py).
#include "common/copy.h"
#include "common/shim_support.h"
#include "metal/epilogue.h"
#include "metal/operands.h"
#include "metal/products.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

// As squeeze.metal has them.
struct Squeeze {
  uint32_t channels, places, lanes, middle, results;
  int32_t first, has_biases[2];

  static constexpr uint64_t kThreads = 512;
  static constexpr int64_t kMost = 2048, kResults = 128;  // in a group's memory; of a group
};

Tensor bias_or(const Tensor* bias, const Tensor& unread) {
  return bias == nullptr ? unread : dense(*bias);
}

// A pointwise convolution of so many channels, of the images' dtype.
bool fits(const Tensor& weight, const Tensor* bias, const Tensor& images, int64_t channels) {
  const bool pointwise = weight.dimensions == 4 && weight.elements() == weight.size[0] * channels;
  const bool biased = bias == nullptr || (bias->dimensions == 1 && bias->dtype == images.dtype &&
                                          bias->size[0] == weight.size[0]);
  return pointwise && weight.size[1] == channels && weight.dtype == images.dtype && biased;
}

}  // namespace

MENAGERIE_SHIM aoti_torch_mps_squeeze(AtenTensorHandle images, AtenTensorHandle down,
                                      AtenTensorHandle* down_bias, AtenTensorHandle up,
                                      AtenTensorHandle* up_bias, const int64_t* steps,
                                      int64_t steps_len_, const double* low, int64_t low_len_,
                                      const double* high, int64_t high_len_, int64_t first,
                                      AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor x = dense(operand(images));
    const Tensor left = dense(operand(down)), right = dense(operand(up));
    const Tensor* biases[]{optional_operand(down_bias), optional_operand(up_bias)};
    require(x.dimensions == 4 && fits(left, biases[0], x, x.size[1]) &&
                fits(right, biases[1], x, left.size[0]) &&
                std::max(left.size[0], left.size[1]) <= Squeeze::kMost && first >= 0 &&
                first <= steps_len_,
            "a squeeze of ", x, " by ", left, " and ", right);
    const std::array<int64_t, 4> sizes{x.size[0], right.size[0], 1, 1};
    const Tensor out = metal::empty_contiguous(x.dtype, sizes);
    const Finishing finishing = finishing_of(numbers(steps, steps_len_), list(low, low_len_),
                                             list(high, high_len_), nullptr, out);
    const int64_t places = x.size[2] * x.size[3];
    counted(x.elements());
    Arguments arguments(out, x, left, bias_or(biases[0], left), right, bias_or(biases[1], right));
    arguments.add(Squeeze{counted(x.size[1]),
                          counted(places),
                          places > 256 ? 32U : 8U,
                          counted(left.size[0]),
                          counted(right.size[0]),
                          static_cast<int>(first),
                          {biases[0] != nullptr, biases[1] != nullptr}});
    arguments.add(finishing.finish);
    if (!out.empty()) {
      dispatch("squeeze", "squeeze_" + metal_name(x.dtype), arguments,
               Grid{{quotient(right.size[0], Squeeze::kResults) * Squeeze::kThreads,
                     counted(x.size[0]), 1},
                    {Squeeze::kThreads, 1, 1}});
    }
    *ret0 = to_handle(out);
  });
}
