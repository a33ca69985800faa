// Compiled shaders of the emulated device: shared libraries that Python makes of Metal source.
#pragma once

#include <memory>
#include <string>

#include "metal/device.h"
#include "metal/emulated/prelude/abi.h"

namespace menagerie::metal::emulated {

// How shaders run; menagerie/emulator.py has the same names.
enum class Mode : int {
  kChecked,  // every access to memory is checked
  kPlain,    // the same arithmetic without the checks
  kOther,    // as another device may compute, without the checks: with subnormals, contracted
             // within a statement, atomics in the opposite order, halves by matrix units
};
inline constexpr size_t kModes = 3;
Mode current_mode();

// The libraries that one text was compiled to, one for each mode that was asked for.
class HostShaders;

class HostKernel final : public Kernel {
 public:
  using KernelEntry = menagerie::emulated::KernelEntry;

  HostKernel(std::shared_ptr<HostShaders> shaders, const KernelEntry* entry);

  const std::string& name() const override { return name_; }
  uint64_t max_threads_per_group() const override { return entry_->max_threads; }
  uint64_t simd_width() const override { return menagerie::emulated::kSimdWidth; }
  const KernelEntry& entry() const { return *entry_; }
  // The same kernel as it is compiled for another way of running.
  const KernelEntry& entry(Mode mode) const;

 private:
  std::shared_ptr<HostShaders> shaders_;
  const KernelEntry* entry_;
  std::string name_;
};

// Has the source compiled, and loads what it became. Fails with the compiler's first error.
std::shared_ptr<ShaderLibrary> load_shaders(const std::string& source);

}  // namespace menagerie::metal::emulated
