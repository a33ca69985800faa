// What heavy kernels compute, told to the profile of the program that runs; without one, nothing.
#pragma once

#include "common/kernels.h"
#include "common/tensor.h"

namespace menagerie {

// a[..., M, K] * b[..., K, N]: 2 M N K a matrix.
void note_product(const Tensor& a, const Tensor& b, const Tensor& output);

// Twice the output's elements, times those of the weight that make one of them; of a transposed
// convolution the input's elements, times those that one of them goes to.
void note_convolution(const Tensor& input, const Tensor& weight, bool transposed,
                      const Tensor& output);

// The two convolutions that make one output.
void note_expanded(const kernels::Expanded& call, const Tensor& output);

// q[B, H, M, E], k[B, H, N, E]: 4 B H M N E, also where a mask hides scores.
void note_attention(const Tensor& q, const Tensor& k, const Tensor& output);

}  // namespace menagerie
