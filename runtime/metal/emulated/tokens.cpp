#include "metal/emulated/tokens.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "common/error.h"
#include "metal/emulated/prelude/abi.h"

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

namespace {

namespace abi = menagerie::emulated;

constexpr std::array<std::pair<std::string_view, int>, 14> kRoles = {{
    {"thread_position_in_grid", abi::kThreadInGrid},
    {"thread_position_in_threadgroup", abi::kThreadInGroup},
    {"threadgroup_position_in_grid", abi::kGroupInGrid},
    {"threads_per_grid", abi::kThreadsPerGrid},
    {"threads_per_threadgroup", abi::kThreadsPerGroup},
    {"dispatch_threads_per_threadgroup", abi::kNominalThreadsPerGroup},
    {"threadgroups_per_grid", abi::kGroupsPerGrid},
    {"thread_index_in_threadgroup", abi::kIndexInGroup},
    {"thread_index_in_simdgroup", abi::kIndexInSimd},
    {"simdgroup_index_in_threadgroup", abi::kSimdInGroup},
    {"threads_per_simdgroup", abi::kThreadsPerSimd},
    {"thread_execution_width", abi::kThreadsPerSimd},
    {"simdgroups_per_threadgroup", abi::kSimdsPerGroup},
    {"dispatch_simdgroups_per_threadgroup", abi::kNominalSimdsPerGroup},
}};

constexpr int kUnknown = -1000;  // a buffer that waits for its index

int role_of(std::span<const Token> attribute, std::string_view kernel, std::string_view name) {
  const Token& word = attribute.front();
  if (word.text == "buffer" && attribute.size() == 4) {
    const std::string_view digits = attribute[2].text;
    int index = -1;
    std::from_chars(digits.data(), digits.data() + digits.size(), index);
    require(index >= 0 && index < static_cast<int>(abi::kMaxArguments), "line ", word.line,
            ": kernel ", kernel, ", parameter ", name, ": buffer(", digits, ") is not one of 0 to ",
            abi::kMaxArguments - 1);
    return index;
  }
  for (const auto& [known, role] : kRoles) {
    if (word.text == known) return role;
  }
  fail("line ", word.line, ": kernel ", kernel, ", parameter ", name, ": the attribute ", word.text,
       " is not emulated");
}

KernelParameter parameter_of(std::span<const Token> tokens, std::string_view kernel) {
  KernelParameter parameter;
  parameter.role = kUnknown;
  size_t at = 0;
  while (at < tokens.size()) {
    const bool attribute =
        tokens[at].text == "[" && at + 1 < tokens.size() && tokens[at + 1].text == "[";
    if (!attribute) {
      if (tokens[at].kind == TokenKind::kWord) parameter.name = tokens[at].text;
      ++at;
      continue;
    }
    const size_t end = closing(tokens, at);
    parameter.role = role_of(tokens.subspan(at + 2, end - at - 3), kernel, parameter.name);
    at = end + 1;
  }
  return parameter;
}

void give_out_indices(std::vector<KernelParameter>& parameters, std::string_view kernel) {
  std::array<bool, abi::kMaxArguments> taken{};
  for (const KernelParameter& parameter : parameters) {
    if (parameter.role >= 0) taken[parameter.role] = true;
  }
  size_t free = 0;
  for (KernelParameter& parameter : parameters) {
    if (parameter.role != kUnknown) continue;
    while (free < taken.size() && taken[free]) ++free;
    require(free < taken.size(), "kernel ", kernel, " has more than ", taken.size(), " buffers");
    taken[free] = true;
    parameter.role = static_cast<int>(free);
  }
}

}  // namespace

size_t closing(std::span<const Token> tokens, size_t open) {
  const std::string_view opens = tokens[open].text;
  const std::string_view closes = opens == "("   ? ")"
                                  : opens == "[" ? "]"
                                  : opens == "{" ? "}"
                                                 : ">";
  int depth = 0;
  for (size_t at = open; at < tokens.size(); ++at) {
    if (tokens[at].text == opens) ++depth;
    if (tokens[at].text == closes && --depth == 0) return at;
  }
  fail("line ", tokens[open].line, ": ", opens, " is never closed");
}

std::vector<KernelParameter> parameters_of(std::span<const Token> list, std::string_view kernel) {
  std::vector<KernelParameter> parameters;
  size_t begin = 0;
  int depth = 0;
  for (size_t at = 0; at <= list.size(); ++at) {
    const std::string_view text = at < list.size() ? list[at].text : ",";
    if (text == "(" || text == "[" || text == "<" || text == "{") ++depth;
    if (text == ")" || text == "]" || text == ">" || text == "}") --depth;
    if (text != "," || (depth != 0 && at < list.size())) continue;
    if (at > begin) parameters.push_back(parameter_of(list.subspan(begin, at - begin), kernel));
    begin = at + 1;
  }
  give_out_indices(parameters, kernel);
  return parameters;
}

}  // namespace menagerie::metal::emulated
