// Tokens of preprocessed C++, as much as finding kernels needs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "metal/emulated/source.h"

namespace menagerie::metal::emulated {

enum class TokenKind { kWord, kNumber, kText, kSign };

struct Token {
  TokenKind kind;
  std::string_view text;
  size_t offset;  // in the source
  int64_t line;   // as the preprocessor's markers count
};

std::vector<Token> tokens_of(std::string_view source);

// Index of the token that closes the bracket opened at `open`; fails if there is none.
size_t closing(std::span<const Token> tokens, size_t open);

// Parameters between the parentheses of a kernel. A buffer without [[buffer(n)]] takes the lowest
// index that is free, as Metal's compiler gives them out.
std::vector<KernelParameter> parameters_of(std::span<const Token> list, std::string_view kernel);

}  // namespace menagerie::metal::emulated
