#include "metal/emulated/shaders.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <utility>

#include "common/error.h"

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
using Compile = int (*)(const char* source, const char* prelude, char* said, size_t capacity);
std::atomic<Compile> compile = nullptr;

std::filesystem::path compiled(const std::string& source) {
  const Compile ask = compile;
  require(ask != nullptr,
          "the emulated Metal device has no compiler: "
          "menagerie_emulator_configure was not called");
  std::array<char, 64 * 1024> said{};
  const int status = ask(source.c_str(), menagerie_prelude_begin, said.data(), said.size());
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

class HostLibrary final : public ShaderLibrary {
 public:
  explicit HostLibrary(std::shared_ptr<void> library) : library_(std::move(library)) {
    entries_ = static_cast<const KernelEntry*>(::dlsym(library_.get(), "menagerie_kernels"));
    require(entries_ != nullptr, "the compiled shaders have no table of kernels");
  }

  std::shared_ptr<Kernel> kernel(const std::string& name) override {
    std::string known;
    for (const KernelEntry* entry = entries_; entry->name != nullptr; ++entry) {
      if (name == entry->name) return std::make_shared<HostKernel>(library_, entry);
      known += std::string(known.empty() ? "" : ", ") + entry->name;
    }
    fail("the shader library has no kernel ", name, "; it has ", known.empty() ? "none" : known);
  }

 private:
  std::shared_ptr<void> library_;
  const KernelEntry* entries_;
};

}  // namespace

std::shared_ptr<ShaderLibrary> load_shaders(const std::string& source) {
  const std::filesystem::path path = compiled(source);
  std::shared_ptr<void> library = opened(path);
  if (library == nullptr) {
    std::filesystem::remove(path);  // damaged: made anew
    library = opened(compiled(source));
  }
  require(library != nullptr, "the compiled shaders cannot be loaded: ", ::dlerror());
  return std::make_shared<HostLibrary>(std::move(library));
}

}  // namespace menagerie::metal::emulated

extern "C" __attribute__((visibility("default"))) void menagerie_emulator_configure(
    menagerie::metal::emulated::Compile compile) {
  menagerie::metal::emulated::compile = compile;
}
