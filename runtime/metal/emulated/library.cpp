#include "metal/emulated/library.h"

#include <dlfcn.h>

#include <filesystem>
#include <utility>

#include "common/error.h"
#include "metal/emulated/toolchain.h"

namespace menagerie::metal::emulated {
namespace {

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
