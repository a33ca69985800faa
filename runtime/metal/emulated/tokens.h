// Tokens of preprocessed C++, as much as finding kernels needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace menagerie::metal::emulated {

enum class TokenKind { kWord, kNumber, kText, kSign };

struct Token {
  TokenKind kind;
  std::string_view text;
  size_t offset;  // in the source
  int64_t line;   // as the preprocessor's markers count
};

std::vector<Token> tokens_of(std::string_view source);

}  // namespace menagerie::metal::emulated
