// Files for readers that want a path; in memory where the system has such a place.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "target.h"

namespace fuzz {

// A folder of this process, removed at its end.
inline const std::filesystem::path& folder() {
  static const struct Folder {
    Folder() {
      const std::filesystem::path memory = "/dev/shm";
      const bool usable = ::access(memory.c_str(), W_OK) == 0;
      std::string text =
          (usable ? memory : std::filesystem::temp_directory_path()) / "menagerie-fuzz-XXXXXX";
      must(::mkdtemp(text.data()) != nullptr, "a folder can be made");
      path = text;
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::filesystem::path path;
  } made;
  return made.path;
}

// Writes a file of that name; its path.
inline std::filesystem::path scratch(const std::string& name, std::string_view bytes) {
  const std::filesystem::path path = folder() / name;
  std::filesystem::create_directories(path.parent_path());
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  must(file >= 0, "a file can be made");
  must(::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
       "a file can be written");
  ::close(file);
  return path;
}

}  // namespace fuzz
