// Fused operations as torch's mkldnn operators name them.
#pragma once

#include <span>
#include <string_view>

#include "common/error.h"
#include "kernels/kernels.h"

namespace menagerie {

// Return the activation `name` with its scalars and algorithm, as torch's fusions attach them:
// relu, hardtanh, gelu, swish, sigmoid, tanh, hardswish, hardsigmoid, none.
inline kernels::Epilogue activation_named(std::string_view name,
                                          std::span<const double* const> scalars,
                                          std::string_view algorithm) {
  using kernels::Activation;
  const auto scalar = [&](size_t index) {
    require(index < scalars.size() && scalars[index] != nullptr, name, " lacks its scalar number ",
            index);
    return static_cast<float>(*scalars[index]);
  };
  if (name == "none") return {};
  if (name == "relu") return {.activation = Activation::kRelu};
  if (name == "sigmoid") return {.activation = Activation::kSigmoid};
  if (name == "tanh") return {.activation = Activation::kTanh};
  if (name == "swish") return {.activation = Activation::kSwish};
  if (name == "hardswish") return {.activation = Activation::kHardSwish};
  if (name == "hardsigmoid") return {.activation = Activation::kHardSigmoid};
  if (name == "hardtanh") {
    return {.activation = Activation::kClamp, .alpha = scalar(0), .beta = scalar(1)};
  }
  if (name == "gelu") {
    require(algorithm == "none" || algorithm == "tanh", "gelu has no algorithm ", algorithm);
    return {.activation = algorithm == "tanh" ? Activation::kGeluTanh : Activation::kGeluErf};
  }
  fail("there is no fused operation ", name);
}

// Optional strings come as a pointer to a pointer; a missing one is "none".
inline std::string_view word_or_none(const char* const* word) {
  return word == nullptr || *word == nullptr ? "none" : *word;
}

}  // namespace menagerie
