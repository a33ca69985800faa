// A mapped safetensors file: eight bytes of header length, a JSON header, the tensors' bytes.
// Everything the format promises is checked before a tensor is handed out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/mapped_file.h"

namespace menagerie {

class SafeTensors {
 public:
  static constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the reference reader

  // A tensor in the mapping, contiguous.
  struct Entry {
    Dtype dtype = Dtype::kFloat32;
    std::vector<int64_t> shape;
    std::span<const std::byte> bytes;
  };

  // Map the file; fail with its name and the broken rule.
  explicit SafeTensors(const std::filesystem::path& path) : SafeTensors(OpenFile(path)) {}
  explicit SafeTensors(const OpenFile& file);
  // Return one object for all current readers of a file, which share what is made of its tensors.
  static std::shared_ptr<const SafeTensors> shared(const std::filesystem::path& path);

  // Return the tensor of that name, valid as long as this object; fail if there is none.
  const Entry& tensor(const std::string& name) const;
  // Return the bytes of the whole file.
  std::span<const std::byte> mapping() const { return file_.bytes(); }
  const std::map<std::string, Entry>& tensors() const { return entries_; }

 private:
  void read_header();
  void check_no_holes() const;

  std::filesystem::path path_;
  MappedFile file_;
  std::span<const std::byte> data_;  // the tensors' bytes
  std::map<std::string, Entry> entries_;
};

}  // namespace menagerie
