// Compiled shaders of the emulated device: shared libraries that Python makes of Metal source.
#pragma once

#include <memory>
#include <string>

#include "metal/device.h"
#include "metal/emulated/prelude/abi.h"

namespace menagerie::metal::emulated {

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

// Has the source compiled, and loads what it became. Fails with the compiler's first error.
std::shared_ptr<ShaderLibrary> load_shaders(const std::string& source);

}  // namespace menagerie::metal::emulated
