// A folder of a test's own, and bytes in files.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace check {

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "menagerie-XXXXXX") {
    std::string text = path_.string();
    if (::mkdtemp(text.data()) == nullptr) std::abort();
    path_ = text;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Numbers that are the same in every run (xorshift; Marsaglia, 2003).
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t roll(uint64_t below) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ % below;
  }

 private:
  uint64_t state_;
};

// The text with some bytes changed, taken out or doubled.
inline std::string mutated(std::string text, Dice& dice) {
  static constexpr std::string_view kNasty = "\"\\{}[]:,-+.eE09 \n\0\x7f\x80\xff#<>()u";
  for (uint64_t count = 1 + dice.roll(4); count > 0 && !text.empty(); --count) {
    const size_t at = dice.roll(text.size());
    switch (dice.roll(4)) {
      case 0:
        text[at] = kNasty[dice.roll(kNasty.size())];
        break;
      case 1:
        text.erase(at, 1 + dice.roll(8));
        break;
      case 2:
        text.insert(at, text.substr(dice.roll(text.size()), dice.roll(12)));
        break;
      default:
        text[at] = static_cast<char>(text[at] ^ (1 << dice.roll(8)));
    }
  }
  return text;
}

}  // namespace check
