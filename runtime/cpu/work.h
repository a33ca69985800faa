// The work of heavy kernels: it is reported to the running program's profile, if there is one, and
// decides the number of threads.
#pragma once

#include "common/tensor.h"
#include "kernels/kernels.h"

namespace menagerie {

// While it lives, kernels use all threads or one, by the work, unless the caller set the number.
class [[nodiscard]] Work {
 public:
  Work(double flops, double bytes);
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();

 private:
  int32_t before_ = 0;  // 0: not changed
};

// Return the work of a[..., M, K] * b[..., K, N]: 2 M N K per matrix.
Work work_of_product(const Tensor& a, const Tensor& b, const Tensor& output);

// Return twice the output's elements times the weights that make one of them; for a transposed
// convolution, the input's elements times the weights that each one meets.
Work work_of_convolution(const Tensor& input, const Tensor& weight, bool transposed,
                         const Tensor& output);

// Return the work of q[B, H, M, E], k[B, H, N, E]: 4 B H M N E, even where a mask hides scores.
Work work_of_attention(const Tensor& q, const Tensor& k, const Tensor& output);

// Report the two convolutions that make one output, after it has been computed.
void note_expanded(const kernels::Expanded& call, const Tensor& output);

}  // namespace menagerie
