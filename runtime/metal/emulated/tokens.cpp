#include "metal/emulated/tokens.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

namespace menagerie::metal::emulated {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  std::vector<Token> read() {
    while (at_ < source_.size()) next();
    return std::move(tokens_);
  }

 private:
  void next() {
    const char c = source_[at_];
    if (c == '\n') {
      ++line_;
      ++at_;
      line_begins_ = true;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at_;
    } else if (c == '#' && line_begins_) {
      marker();
    } else if (c == '"' || c == '\'') {
      add(TokenKind::kText, text_end(c));
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      add(TokenKind::kNumber, number_end());
    } else if (is_word(c)) {
      size_t end = at_;
      while (end < source_.size() && is_word(source_[end])) ++end;
      add(TokenKind::kWord, end);
    } else {
      add(TokenKind::kSign, source_.substr(at_, 2) == "::" ? at_ + 2 : at_ + 1);
    }
  }

  void add(TokenKind kind, size_t end) {
    tokens_.push_back({kind, source_.substr(at_, end - at_), at_, line_});
    at_ = end;
    line_begins_ = false;
  }

  // `# 12 "kernels.metal"`: the next line is that file's line 12. Pragmas are passed over.
  void marker() {
    const size_t end = std::min(source_.find('\n', at_), source_.size());
    size_t digits = at_ + 1;
    while (digits < end && source_[digits] == ' ') ++digits;
    uint32_t number = 0;
    const auto read = std::from_chars(source_.data() + digits, source_.data() + end, number);
    if (read.ec == std::errc()) line_ = int64_t{number} - 1;
    at_ = end;
  }

  size_t text_end(char quote) const {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    return std::min(end + 1, source_.size());
  }

  size_t number_end() const {
    size_t end = at_;
    while (end < source_.size()) {
      const char c = source_[end];
      const bool sign = (c == '+' || c == '-') &&
                        std::string_view("eEpP").find(source_[end - 1]) != std::string_view::npos;
      if (!is_word(c) && c != '.' && !sign) break;
      ++end;
    }
    return end;
  }

  std::string_view source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int64_t line_ = 1;
  bool line_begins_ = true;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Reader(source).read(); }

}  // namespace menagerie::metal::emulated
