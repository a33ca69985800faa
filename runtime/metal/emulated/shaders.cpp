#include "metal/emulated/shaders.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "common/error.h"
#include "metal/dispatch.h"

// The headers of prelude/ in one text: the assembler puts the file in as it is: a compiler would
// bound the length of a literal.
asm(R"(
.section .rodata
.hidden menagerie_prelude_begin
.globl menagerie_prelude_begin
menagerie_prelude_begin:
.incbin ")" MENAGERIE_PRELUDE R"("
.byte 0
.previous
)");

extern "C" {
extern const char menagerie_prelude_begin[];
}

namespace menagerie::metal::emulated {
namespace {

// What Python compiles with (menagerie/emulator.py). Writes the path of the shared library, or what
// is wrong with the source and returns other than 0; nothing if it was interrupted.
using Compile = int (*)(const char* source, const char* prelude, int mode, char* said,
                        size_t capacity);
std::atomic<Compile> compile = nullptr;
std::atomic<int> mode = 0;

std::filesystem::path compiled(const std::string& source, Mode mode) {
  const Compile ask = compile;
  require(ask != nullptr,
          "the emulated Metal device has no compiler: "
          "menagerie_emulator_configure was not called");
  std::array<char, 64 * 1024> said{};
  const int status = ask(source.c_str(), menagerie_prelude_begin, static_cast<int>(mode),
                         said.data(), said.size());
  require(said.front() != '\0', "compiling a shader was interrupted");
  require(status == 0, said.data());
  return said.data();
}

using menagerie::emulated::KernelEntry;

std::shared_ptr<void> opened(const std::filesystem::path& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  return {library, [](void* loaded) {
            if (loaded != nullptr) ::dlclose(loaded);
          }};
}

std::shared_ptr<void> loaded(const std::string& source, Mode mode) {
  const std::filesystem::path path = compiled(source, mode);
  std::shared_ptr<void> library = opened(path);
  if (library == nullptr) {
    std::filesystem::remove(path);  // damaged: made anew
    library = opened(compiled(source, mode));
  }
  require(library != nullptr, "the compiled shaders cannot be loaded: ", ::dlerror());
  return library;
}

}  // namespace

class HostShaders {
 public:
  explicit HostShaders(std::string source) : source_(std::move(source)) { entries(Mode::kChecked); }

  // Ends with a null name.
  const KernelEntry* entries(Mode mode) {
    const std::lock_guard lock(mutex_);
    auto& library = libraries_[static_cast<size_t>(mode)];
    if (library == nullptr) library = loaded(source_, mode);
    const void* entries = ::dlsym(library.get(), "menagerie_kernels");
    require(entries != nullptr, "the compiled shaders have no table of kernels");
    return static_cast<const KernelEntry*>(entries);
  }

 private:
  std::string source_;
  std::mutex mutex_;
  std::array<std::shared_ptr<void>, kModes> libraries_;
};

namespace {

std::map<uint32_t, std::string> buffers_of(const KernelEntry& entry) {
  std::map<uint32_t, std::string> buffers;
  for (uint32_t index = 0; index < menagerie::emulated::kMaxArguments; ++index) {
    if ((entry.buffers >> index & 1) != 0) buffers[index] = entry.names[index];
  }
  return buffers;
}

class HostLibrary final : public ShaderLibrary {
 public:
  explicit HostLibrary(const std::string& source)
      : shaders_(std::make_shared<HostShaders>(source)) {}

  std::shared_ptr<Kernel> kernel(const std::string& name) override {
    std::string known;
    for (const auto* entry = shaders_->entries(Mode::kChecked); entry->name != nullptr; ++entry) {
      if (name == entry->name) return std::make_shared<HostKernel>(shaders_, entry);
      known += std::string(known.empty() ? "" : ", ") + entry->name;
    }
    fail("the shader library has no kernel ", name, "; it has ", known.empty() ? "none" : known);
  }

 private:
  std::shared_ptr<HostShaders> shaders_;
};

}  // namespace

Mode current_mode() { return static_cast<Mode>(mode.load()); }

HostKernel::HostKernel(std::shared_ptr<HostShaders> shaders, const KernelEntry* entry)
    : Kernel(buffers_of(*entry)), shaders_(std::move(shaders)), entry_(entry), name_(entry->name) {}

const KernelEntry& HostKernel::entry(Mode mode) const {
  return shaders_->entries(mode)[entry_ - shaders_->entries(Mode::kChecked)];
}

std::shared_ptr<ShaderLibrary> load_shaders(const std::string& source) {
  return std::make_shared<HostLibrary>(source);
}

}  // namespace menagerie::metal::emulated

extern "C" __attribute__((visibility("default"))) void menagerie_emulator_configure(
    menagerie::metal::emulated::Compile compile) {
  menagerie::metal::emulated::compile = compile;
}

// Has the runtime's own kernels compiled for all modes; returns 0 if they were.
extern "C" __attribute__((visibility("default"))) int menagerie_emulator_prepare() {
  using namespace menagerie::metal;
  try {
    for (const auto& [file, source] : kOwnSources) {
      for (size_t mode = 0; mode < emulated::kModes; ++mode) {
        emulated::compiled(std::string(source), static_cast<emulated::Mode>(mode));
      }
    }
  } catch (...) {
    return 1;
  }
  return 0;
}

// For what is dispatched from now on, by all threads.
extern "C" __attribute__((visibility("default"))) void menagerie_emulator_mode(int mode) {
  menagerie::metal::emulated::mode = mode;
}
