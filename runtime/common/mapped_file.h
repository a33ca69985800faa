// A file mapped read-only: its pages are shared by every process that maps it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace menagerie {

class MappedFile {
 public:
  // Fails if the path is not a regular file or cannot be read.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole file as text; fails above `most` bytes.
std::string read_text(const std::filesystem::path& path, size_t most);

}  // namespace menagerie
