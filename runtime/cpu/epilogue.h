// Fused operations as the mkldnn operators of torch name them.
#pragma once

#include <span>
#include <string_view>

#include "kernels/kernels.h"

namespace menagerie {

// `name` with its scalars and algorithm, as torch's fusions attach them: relu, leaky_relu,
// hardtanh, gelu, swish, sigmoid, tanh, hardswish, hardsigmoid, none.
kernels::Epilogue activation_named(std::string_view name, std::span<const double* const> scalars,
                                   std::string_view algorithm);

// `add` or `mul`; a factor other than 1 is refused.
kernels::Binary binary_named(std::string_view name, const double* alpha);

// Optional strings come as a pointer to a pointer; none is "none".
inline std::string_view word_or_none(const char* const* word) {
  return word == nullptr || *word == nullptr ? "none" : *word;
}

}  // namespace menagerie
