#include "metal/emulated/source.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "common/error.h"
#include "metal/emulated/tokens.h"

namespace menagerie::metal::emulated {
namespace {

struct Edit {
  size_t offset;
  size_t length;
  std::string text;
};

struct Scope {
  std::string space;  // of a namespace: its name; else empty
  bool is_space = false;
};

// Finds an attribute's argument: "64" in [[max_total_threads_per_threadgroup(64)]].
std::optional<std::string> attribute_in(std::span<const Token> tokens, std::string_view name) {
  for (size_t at = 0; at + 1 < tokens.size(); ++at) {
    if (tokens[at].text != name || tokens[at + 1].text != "(") continue;
    const size_t end = closing(tokens, at + 1);
    std::string argument;
    for (size_t i = at + 2; i < end; ++i) argument += std::string(tokens[i].text) + ' ';
    return argument;
  }
  return std::nullopt;
}

// Adjacent literals are one: "fill_" "float".
std::string unquoted(const std::string& literals) {
  std::string text;
  bool inside = false;
  for (const char c : literals) {
    if (c == '"') {
      inside = !inside;
    } else if (inside) {
      text += c;
    }
  }
  return text;
}

bool has_word(std::span<const Token> tokens, std::string_view word) {
  return std::ranges::any_of(tokens, [&](const Token& token) { return token.text == word; });
}

bool is_floating(std::string_view number) {
  const bool hexadecimal = number.starts_with("0x") || number.starts_with("0X");
  return number.find_first_of(hexadecimal ? ".pP" : ".eE") != std::string_view::npos;
}

// Metal has no double: 0.5 is a float, 0.5h a half. Clang's own option for this does not reach
// templates.
std::string float_literal(const std::string& number) {
  const auto shorter = [&](size_t by) { return number.substr(0, number.size() - by) + "f"; };
  if (number.ends_with("bf") || number.ends_with("BF")) return "bfloat(" + shorter(2) + ")";
  if (number.ends_with('h') || number.ends_with('H')) return "half(" + shorter(1) + ")";
  return number.ends_with('f') || number.ends_with('F') ? number : number + "f";
}

class Translator {
 public:
  explicit Translator(std::string_view source) : source_(source), tokens_(tokens_of(source)) {}

  ShaderSource translate() {
    for (size_t at = 0; at < tokens_.size();) at = step(at);
    for (const Token& token : tokens_) {
      if (token.kind != TokenKind::kNumber || !is_floating(token.text)) continue;
      edits_.push_back({token.offset, token.text.size(), float_literal(std::string(token.text))});
    }
    return {edited(), std::move(kernels_)};
  }

 private:
  std::span<const Token> between(size_t begin, size_t end) const {
    return std::span(tokens_).subspan(begin, end - begin);
  }

  bool in_space() const { return scopes_.empty() || scopes_.back().is_space; }

  size_t step(size_t at) {
    const std::string_view text = tokens_[at].text;
    if (text == "namespace" && in_space()) return open_space(at);
    if (text == "kernel" && in_space()) return kernel(at);
    if (text == "threadgroup" && !in_space() && parentheses_ == 0) return declaration(at);
    if (text == "(") ++parentheses_;
    if (text == ")") --parentheses_;
    if (text == "{") scopes_.push_back({});
    if (text == "}" && !scopes_.empty()) scopes_.pop_back();
    if (text == ";" || text == "{" || text == "}") begin_ = at + 1;
    return at + 1;
  }

  size_t open_space(size_t at) {
    std::string name;
    size_t end = at + 1;
    while (end < tokens_.size() && tokens_[end].text != "{" && tokens_[end].text != ";") {
      name += tokens_[end++].text;
    }
    if (end < tokens_.size() && tokens_[end].text == "{") {
      scopes_.push_back({name.empty() ? "" : name + "::", true});
    }
    begin_ = end + 1;
    return end + 1;
  }

  // `kernel void name<arguments>(parameters)`: a function, a template or an instantiation of one.
  size_t kernel(size_t at) {
    size_t name_at = at + 1;
    while (name_at < tokens_.size() && tokens_[name_at].text == "]") ++name_at;  // [[kernel]]
    require(name_at + 1 < tokens_.size() && tokens_[name_at].text == "void", "line ",
            tokens_[at].line, ": a kernel returns void");
    std::string name, arguments;
    size_t open = name_at + 1;
    for (; open < tokens_.size() && tokens_[open].text != "("; ++open) {
      (arguments.empty() && tokens_[open].text != "<" ? name : arguments) += tokens_[open].text;
      if (!arguments.empty()) arguments += ' ';
    }
    require(open < tokens_.size(), "line ", tokens_[at].line, ": kernel ", name,
            " has no parameters");
    const size_t close = closing(tokens_, open);
    const auto list = between(open + 1, close);
    const auto before = between(begin_, at);
    if (has_word(before, "template") && !arguments.empty()) {
      instantiate(name, arguments, before);
    } else if (close + 1 < tokens_.size() && tokens_[close + 1].text == "{") {
      KernelSource found = function(name, list, before, close + 1);
      if (has_word(before, "template")) {
        templates_[qualified(name)] = std::move(found);
      } else {
        kernels_.push_back(std::move(found));
      }
    }
    return close + 1;
  }

  KernelSource function(const std::string& name, std::span<const Token> list,
                        std::span<const Token> before, size_t brace) const {
    const auto body = between(brace, closing(tokens_, brace));
    KernelSource result;
    result.name = unquoted(attribute_in(before, "host_name").value_or('"' + name + '"'));
    result.reference = "::" + qualified(name);
    result.parameters = parameters_of(list, name);
    result.max_threads = attribute_in(before, "max_total_threads_per_threadgroup").value_or("");
    result.serial = std::ranges::any_of(body, [](const Token& token) {
      return token.text.find("tomic") != std::string_view::npos;
    });
    return result;
  }

  std::string qualified(std::string_view name) const {
    std::string whole;
    if (name.starts_with("::")) return std::string(name.substr(2));
    for (const Scope& scope : scopes_) whole += scope.space;
    return whole + std::string(name);
  }

  // `template [[host_name("fill_float")]] kernel void fill<float>(...)`. C++ takes no attribute
  // there.
  void instantiate(const std::string& name, const std::string& arguments,
                   std::span<const Token> before) {
    const auto host_name = attribute_in(before, "host_name");
    for (size_t i = 0; i + 1 < before.size(); ++i) {
      if (before[i].text != "[" || before[i + 1].text != "[") continue;
      const size_t end = closing(before, i);
      edits_.push_back({before[i].offset, before[end].offset + 1 - before[i].offset, ""});
      i = end;
    }
    if (!host_name.has_value()) return;  // without a name nobody can ask for it
    const auto found = templates_.find(qualified(name));
    require(found != templates_.end(), "line ", before.front().line, ": no kernel template ", name,
            " comes before its instantiation");
    KernelSource instance = found->second;
    instance.name = unquoted(*host_name);
    instance.reference += arguments;
    kernels_.push_back(std::move(instance));
  }

  // `threadgroup float sums[32], total;` inside a function. A pointer to threadgroup memory is an
  // ordinary variable and stays as it is.
  size_t declaration(size_t at) {
    size_t name_at = at + 1;
    int angles = 0;
    for (; name_at + 1 < tokens_.size(); ++name_at) {
      const std::string_view text = tokens_[name_at].text;
      const std::string_view next = tokens_[name_at + 1].text;
      if (text == "*" || text == "&" || text == "(" || text == ";") return at + 1;
      if (text == "<") ++angles;
      if (text == ">") --angles;
      if (angles == 0 && name_at > at + 1 && tokens_[name_at].kind == TokenKind::kWord &&
          (next == "[" || next == ";" || next == ",")) {
        break;
      }
    }
    size_t end = name_at;
    while (end < tokens_.size() && tokens_[end].text != ";") ++end;
    require(end < tokens_.size(), "line ", tokens_[at].line,
            ": a threadgroup variable is declared without an end");
    const std::string type = text_of(at + 1, name_at);
    std::string text;
    for (size_t begin = name_at; begin < end;) {
      const size_t comma = declarator_end(begin, end);
      text += reference_to(type, std::string(tokens_[begin].text), text_of(begin + 1, comma));
      begin = comma + 1;
    }
    edits_.push_back({tokens_[at].offset, tokens_[end].offset + 1 - tokens_[at].offset, text});
    begin_ = end + 1;
    return end + 1;
  }

  size_t declarator_end(size_t begin, size_t end) const {
    int depth = 0;
    for (size_t at = begin; at < end; ++at) {
      const std::string_view text = tokens_[at].text;
      if (text == "[" || text == "(" || text == "{") ++depth;
      if (text == "]" || text == ")" || text == "}") --depth;
      if (text == "," && depth == 0) return at;
    }
    return end;
  }

  std::string reference_to(const std::string& type, const std::string& name,
                           const std::string& extents) {
    const std::string id = std::to_string(variables_++);
    const std::string alias = "menagerie_local_" + id;
    return "typedef " + type + " " + alias + extents + "; " + alias + "& " + name +
           " = ::menagerie::emulated::local_variable<" + id + ", " + alias + ">(); ";
  }

  std::string text_of(size_t begin, size_t end) const {
    if (begin >= end) return "";
    const size_t from = tokens_[begin].offset;
    const Token& last = tokens_[end - 1];
    return std::string(source_.substr(from, last.offset + last.text.size() - from));
  }

  std::string edited() {
    std::ranges::sort(edits_, {}, &Edit::offset);
    std::string result;
    size_t at = 0;
    for (const Edit& edit : edits_) {
      if (edit.offset < at) continue;  // within a text that has been replaced as a whole
      result.append(source_, at, edit.offset - at);
      result += edit.text;
      at = edit.offset + edit.length;
    }
    return result.append(source_, at);
  }

  std::string_view source_;
  std::vector<Token> tokens_;
  std::vector<Scope> scopes_;
  std::map<std::string, KernelSource> templates_;
  std::vector<KernelSource> kernels_;
  std::vector<Edit> edits_;
  size_t begin_ = 0;  // first token of the current declaration
  int parentheses_ = 0;
  int variables_ = 0;
};

}  // namespace

std::string without_metal_headers(std::string_view source) {
  std::istringstream lines{std::string(source)};
  std::string result, line;
  while (std::getline(lines, line)) {
    const size_t hash = line.find_first_not_of(" \t");
    const bool include = hash != std::string::npos && line.compare(hash, 9, "#include ") == 0 &&
                         line.find("<metal_", hash) != std::string::npos;
    result += include ? "\n" : line + "\n";
  }
  return result;
}

ShaderSource translate(std::string_view preprocessed) {
  return Translator(preprocessed).translate();
}

std::string kernel_table(const std::vector<KernelSource>& kernels) {
  std::ostringstream table, calls;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const KernelSource& kernel = kernels[i];
    calls << "MENAGERIE_UNCHECKED static void menagerie_run_" << i
          << "(menagerie::emulated::Fiber* fiber) { menagerie::emulated::Caller<";
    std::map<int, std::string> names;
    uint32_t buffers = 0;
    for (size_t p = 0; p < kernel.parameters.size(); ++p) {
      const KernelParameter& parameter = kernel.parameters[p];
      calls << (p > 0 ? ", " : "") << parameter.role;
      if (parameter.role < 0) continue;
      buffers |= uint32_t{1} << parameter.role;
      names[parameter.role] = parameter.name;
    }
    calls << ">::run(fiber, &" << kernel.reference << "); }\n";
    table << "  {\"" << kernel.name << "\", menagerie_run_" << i << ", "
          << (kernel.max_threads.empty() ? "menagerie::emulated::kMaxThreads" : kernel.max_threads)
          << ", " << (kernel.serial ? "true" : "false") << ", " << buffers << "U, {";
    int last = -1;
    for (const auto& [role, name] : names) {
      for (++last; last < role; ++last) table << "nullptr, ";
      table << '"' << name << "\", ";
    }
    table << "}},\n";
  }
  return "\n" + calls.str() +
         "extern \"C\" __attribute__((visibility(\"default\")))\n"
         "extern const menagerie::emulated::KernelEntry menagerie_kernels[] = {\n" +
         table.str() + "  {nullptr, nullptr, 0, false, 0U, {}},\n};\n";
}

}  // namespace menagerie::metal::emulated
