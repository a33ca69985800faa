#include "cpu/epilogue.h"

#include "common/error.h"

namespace menagerie {
namespace {

using kernels::Activation;
using kernels::Epilogue;

float scalar(std::span<const double* const> scalars, size_t index, std::string_view name) {
  require(index < scalars.size() && scalars[index] != nullptr, name, " lacks its scalar number ",
          index);
  return static_cast<float>(*scalars[index]);
}

}  // namespace

Epilogue activation_named(std::string_view name, std::span<const double* const> scalars,
                          std::string_view algorithm) {
  if (name == "none") return {};
  if (name == "relu") return {.activation = Activation::kRelu};
  if (name == "sigmoid") return {.activation = Activation::kSigmoid};
  if (name == "tanh") return {.activation = Activation::kTanh};
  if (name == "swish") return {.activation = Activation::kSwish};
  if (name == "hardswish") return {.activation = Activation::kHardSwish};
  if (name == "hardsigmoid") return {.activation = Activation::kHardSigmoid};
  if (name == "leaky_relu") {
    return {.activation = Activation::kLeakyRelu, .alpha = scalar(scalars, 0, name)};
  }
  if (name == "hardtanh") {
    return {.activation = Activation::kClamp,
            .alpha = scalar(scalars, 0, name),
            .beta = scalar(scalars, 1, name)};
  }
  if (name == "gelu") {
    require(algorithm == "none" || algorithm == "tanh", "gelu has no algorithm ", algorithm);
    return {.activation = algorithm == "tanh" ? Activation::kGeluTanh : Activation::kGeluErf};
  }
  fail("there is no fused operation ", name);
}

kernels::Binary binary_named(std::string_view name, const double* alpha) {
  const double factor = alpha == nullptr ? 1 : *alpha;
  require(factor == 1, "a fused ", name, " with factor ", factor, " is not supported");
  if (name == "add") return kernels::Binary::kAdd;
  if (name == "mul") return kernels::Binary::kMultiply;
  fail("there is no fused binary operation ", name);
}

}  // namespace menagerie
