// The parameter list of a compute function: names, and what each stands for.
#pragma once

#include <span>
#include <vector>

#include "metal/emulated/source.h"
#include "metal/emulated/tokens.h"

namespace menagerie::metal::emulated {

// Index of the token that closes the bracket opened at `open`; fails if there is none.
size_t closing(std::span<const Token> tokens, size_t open);

// Parameters between the parentheses of a kernel. A buffer without [[buffer(n)]] takes the lowest
// index that is free, as Metal's compiler gives them out.
std::vector<KernelParameter> parameters_of(std::span<const Token> list, std::string_view kernel);

}  // namespace menagerie::metal::emulated
