// A safetensors file, mapped: eight bytes of header length, a JSON header, the tensors' bytes.
// Everything the format promises is checked before a tensor is handed out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/mapped_file.h"
#include "common/tensor.h"

namespace menagerie {

class SafeTensors {
 public:
  static constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the reference reader

  // Fails with the file and the broken rule. Shared, because the tensors point into the mapping.
  static std::shared_ptr<const SafeTensors> open(const std::filesystem::path& path);

  // The tensor as a constant that keeps this file mapped; fails if there is none of that name.
  Tensor tensor(const std::string& name) const;
  bool contains(const std::string& name) const { return entries_.contains(name); }
  std::vector<std::string> names() const;
  size_t bytes() const { return file_.bytes().size(); }

 private:
  struct Entry {
    Dtype dtype;
    std::vector<int64_t> shape;
    uint64_t begin;  // from the start of the tensors' bytes
    uint64_t end;
  };

  explicit SafeTensors(const std::filesystem::path& path) : path_(path), file_(path) {}
  void read_header();
  void check_no_holes() const;

  std::filesystem::path path_;
  MappedFile file_;
  size_t data_start_ = 0;
  std::map<std::string, Entry> entries_;
  std::weak_ptr<const SafeTensors> self_;
};

}  // namespace menagerie
