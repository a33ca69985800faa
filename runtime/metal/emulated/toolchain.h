// The compiler that makes shaders run on the host: clang of the ziglang wheel, called without a
// shell. What it makes is kept in a folder under names that hash all it was made from.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "metal/device.h"
#include "metal/emulated/prelude/abi.h"

namespace menagerie::metal::emulated {

// Sets the command that clang's and lld's arguments follow, and the folder for what is compiled.
void configure(std::vector<std::string> compiler, std::filesystem::path cache_folder);

// The shared library that Metal source compiles to, from the cache if it is there. Safe to call
// from several threads and processes. Fails with the compiler's first error.
std::filesystem::path compiled(const std::string& source);

class HostKernel final : public Kernel {
 public:
  HostKernel(std::shared_ptr<void> library, const menagerie::emulated::KernelEntry* entry)
      : library_(std::move(library)), entry_(entry), name_(entry->name) {}

  const std::string& name() const override { return name_; }
  uint64_t max_threads_per_group() const override { return entry_->max_threads; }
  uint64_t simd_width() const override { return menagerie::emulated::kSimdWidth; }
  const menagerie::emulated::KernelEntry& entry() const { return *entry_; }

 private:
  std::shared_ptr<void> library_;  // as loaded
  const menagerie::emulated::KernelEntry* entry_;
  std::string name_;
};

// Compiles the source, or takes it from the cache, and loads it.
std::shared_ptr<ShaderLibrary> load_shaders(const std::string& source);

}  // namespace menagerie::metal::emulated
