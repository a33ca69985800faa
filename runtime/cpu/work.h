// What heavy kernels compute: reported to the profile of the program that runs, if there is one,
// and what decides how many threads it is worth.
#pragma once

#include "common/tensor.h"
#include "kernels/kernels.h"

namespace menagerie {

// While it lives, kernels use all threads or one, by the work; unless the caller gave the number.
class [[nodiscard]] Work {
 public:
  Work(double flops, double bytes);
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();

 private:
  int32_t before_ = 0;  // 0: nothing has been changed
};

// a[..., M, K] * b[..., K, N]: 2 M N K a matrix.
Work work_of_product(const Tensor& a, const Tensor& b, const Tensor& output);

// Twice the output's elements, times those of the weight that make one of them; of a transposed
// convolution the input's elements, times those that one of them goes to.
Work work_of_convolution(const Tensor& input, const Tensor& weight, bool transposed,
                         const Tensor& output);

// q[B, H, M, E], k[B, H, N, E]: 4 B H M N E, also where a mask hides scores.
Work work_of_attention(const Tensor& q, const Tensor& k, const Tensor& output);

// The two convolutions that make one output; reported when it has been computed.
void note_expanded(const kernels::Expanded& call, const Tensor& output);

}  // namespace menagerie
