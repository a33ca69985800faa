// A file mapped read-only: every process that maps it shares its pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

namespace menagerie {

// A file opened for reading: it stays the same file, whatever replaces it at its path.
class OpenFile {
 public:
  // Open the file; fail if the path is not a regular file or cannot be read.
  explicit OpenFile(std::filesystem::path path);
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  size_t bytes() const { return bytes_; }
  // Return the device and inode, which differ for every other open file.
  std::pair<uint64_t, uint64_t> identity() const { return identity_; }
  int64_t modified() const { return modified_; }  // nanoseconds since 1970

 private:
  std::filesystem::path path_;
  int descriptor_;
  size_t bytes_ = 0;
  std::pair<uint64_t, uint64_t> identity_;
  int64_t modified_ = 0;
};

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path) : MappedFile(OpenFile(path)) {}
  explicit MappedFile(const OpenFile& file);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Return the whole file as text; fail above `most` bytes.
std::string read_text(const OpenFile& file, size_t most);

}  // namespace menagerie
