#include "common/model_library.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

#include "common/backend.h"
#include "common/error.h"
#include "common/platform/machine.h"

namespace menagerie {

namespace {
using Container = void*;

// Deep binding searches the library's own dependencies, of which this runtime is one, before the
// global scope: if the application itself is linked with libtorch, whose shim functions have the
// same names, those are not used. Sanitizers refuse it, and Mach-O names the library of each symbol
// anyway.
#if defined(RTLD_DEEPBIND) && !defined(MENAGERIE_SANITIZED)
constexpr int kBinding = RTLD_DEEPBIND;
#else
constexpr int kBinding = 0;
#endif

// Load a file's library, once per process. It stays loaded: generated code registers handlers for
// the ends of threads and of the process, which must find it. The file stays open, lest another
// take the name or the identity by which the loader knows the library.
void* loaded(const std::shared_ptr<const OpenFile>& file) {
  struct Loaded {
    std::shared_ptr<const OpenFile> file;
    void* library;
  };
  struct Kept {
    std::mutex mutex;
    std::map<std::pair<uint64_t, uint64_t>, Loaded> libraries;
  };
  static auto* kept = new Kept;  // never destroyed: threads may outlive the statics of the process
  const std::lock_guard lock(kept->mutex);
  const auto found = kept->libraries.find(file->identity());
  if (found != kept->libraries.end()) return found->second.library;
  void* library = ::dlopen(machine::loadable_path(*file).c_str(),
                           RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | kBinding);
  if (library == nullptr) {
    const std::string fact = ::dlerror();
    const bool lacking = fact.find("undefined symbol") != std::string::npos ||
                         fact.find("ymbol not found") != std::string::npos;  // dyld's wording
    fail("the model library cannot be loaded: ", fact,
         lacking ? "; this runtime is older than the bundle: build it again (make setup), or "
                   "install a newer menagerie"
                 : "");
  }
  kept->libraries.emplace(file->identity(), Loaded{file, library});
  return library;
}

}  // namespace

struct ModelLibrary::Functions {
  struct ConstantPair {  // AOTInductorConstantMapEntry
    const char* name;
    TensorHandle handle;
  };
  int32_t (*create)(Container*, size_t models, const char* device, const char* cubin_folder);
  int32_t (*destroy)(Container);
  int32_t (*run)(Container, TensorHandle*, size_t, TensorHandle*, size_t, void* stream,
                 void* proxy);
  int32_t (*constant_count)(Container, size_t*);
  int32_t (*constant_name)(Container, size_t, const char**);
  int32_t (*constant_original_name)(Container, size_t, const char**);
  int32_t (*constant_folded)(Container, size_t, bool*);
  int32_t (*constant_dtype)(Container, size_t, int32_t*);
  int32_t (*constant_bytes)(Container, size_t, size_t*);
  int32_t (*set_constants)(Container, const ConstantPair*, size_t, bool inactive, bool validate);
  int32_t (*fold_constants)(Container, bool inactive, void* stream, void* proxy);
  int32_t (*input_count)(Container, size_t*);
  int32_t (*output_count)(Container, size_t*);
  int32_t (*last_error)(const char**);
};

ModelLibrary::ModelLibrary(const std::shared_ptr<const OpenFile>& file)
    : path_(file->path().string()), call_(std::make_unique<Functions>()) {
  void* library = loaded(file);
  const auto bind = [&](auto& function, const char* name) {
    void* symbol = ::dlsym(library, name);
    require(symbol != nullptr, path_, ": has no function ", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  bind(call_->create, "AOTInductorModelContainerCreateWithDevice");
  bind(call_->destroy, "AOTInductorModelContainerDelete");
  bind(call_->run, "AOTInductorModelContainerRun");
  bind(call_->constant_count, "AOTInductorModelContainerGetNumConstants");
  bind(call_->constant_name, "AOTInductorModelContainerGetConstantName");
  bind(call_->constant_original_name, "AOTInductorModelContainerGetConstantOriginalFQN");
  bind(call_->constant_folded, "AOTInductorModelContainerGetConstantFromFolded");
  bind(call_->constant_dtype, "AOTInductorModelContainerGetConstantDtype");
  bind(call_->constant_bytes, "AOTInductorModelContainerGetConstantDataSize");
  bind(call_->set_constants, "AOTInductorModelContainerUpdateUserManagedConstantBufferPairs");
  bind(call_->fold_constants, "AOTInductorModelContainerRunConstantFolding");
  bind(call_->input_count, "AOTInductorModelContainerGetNumInputs");
  bind(call_->output_count, "AOTInductorModelContainerGetNumOutputs");
  bind(call_->last_error, "AOTInductorGetLastError");
  clear_last_error();  // another model's message does not explain this one's failure
  check(call_->create(&container_, 1, backend::kDevice, nullptr), "creating the model");
}

ModelLibrary::~ModelLibrary() { close(); }

void ModelLibrary::close() noexcept {
  if (container_ != nullptr) call_->destroy(container_);
  container_ = nullptr;
}

void ModelLibrary::check(int32_t code, const char* action) const {
  if (code == 0) return;
  // A shim that failed has set the reason; otherwise the generated code has.
  const std::string shim = last_error();
  const char* generated = nullptr;
  call_->last_error(&generated);
  fail(path_, ": ", action, " failed: ",
       !shim.empty() ? shim : std::string(generated != nullptr ? generated : "no reason given"));
}

std::vector<ConstantInfo> ModelLibrary::constants() const {
  size_t count = 0;
  check(call_->constant_count(container_, &count), "reading its constants");
  std::vector<ConstantInfo> all(count);
  for (size_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    const char* original = nullptr;
    check(call_->constant_name(container_, i, &name), "reading its constants");
    check(call_->constant_original_name(container_, i, &original), "reading its constants");
    check(call_->constant_folded(container_, i, &all[i].folded), "reading its constants");
    check(call_->constant_dtype(container_, i, &all[i].dtype), "reading its constants");
    check(call_->constant_bytes(container_, i, &all[i].bytes), "reading its constants");
    all[i].name = name != nullptr ? name : "";
    all[i].original_name = original != nullptr ? original : "";
  }
  return all;
}

size_t ModelLibrary::input_count() const {
  size_t count = 0;
  check(call_->input_count(container_, &count), "counting its inputs");
  return count;
}

size_t ModelLibrary::output_count() const {
  size_t count = 0;
  check(call_->output_count(container_, &count), "counting its outputs");
  return count;
}

void ModelLibrary::set_constants(
    const std::vector<std::pair<std::string, TensorHandle>>& constants) {
  clear_last_error();
  std::vector<Functions::ConstantPair> pairs;
  for (const auto& [name, handle] : constants) pairs.push_back({name.c_str(), handle});
  check(call_->set_constants(container_, pairs.data(), pairs.size(), /*inactive=*/false,
                             /*validate=*/false),
        "setting its constants");
}

void ModelLibrary::fold_constants() {
  clear_last_error();
  check(call_->fold_constants(container_, /*inactive=*/false, nullptr, nullptr),
        "folding its constants");
}

void ModelLibrary::run(std::vector<TensorHandle>& inputs, std::vector<TensorHandle>& outputs) {
  clear_last_error();
  check(call_->run(container_, inputs.data(), inputs.size(), outputs.data(), outputs.size(),
                   nullptr, nullptr),
        "running it");
}

}  // namespace menagerie
