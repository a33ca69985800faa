#include "metal/dispatch.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "common/error.h"

namespace menagerie::metal {
namespace {

std::string source_of(const std::string& file) {
  const auto found = std::ranges::find(kOwnSources, file,
                                       [](const auto& entry) { return std::string(entry.first); });
  require(found != kOwnSources.end(), "the runtime has no kernels in ", file, ".metal");
  return std::string(found->second);
}

struct Kept {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<ShaderLibrary>> libraries;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Kernel>> kernels;
};

}  // namespace

std::shared_ptr<Kernel> own_kernel(const std::string& file, const std::string& function) {
  static auto* kept = new Kept;  // never destroyed: threads may outlive the statics of the process
  const std::lock_guard lock(kept->mutex);
  auto& kernel = kept->kernels[{file, function}];
  if (kernel != nullptr) return kernel;
  auto& library = kept->libraries[file];
  if (library == nullptr) library = MetalDevice::instance().compile(source_of(file));
  kernel = library->kernel(function);
  return kernel;
}

void dispatch(const std::string& file, const std::string& function, const Arguments& arguments,
              uint64_t threads) {
  if (threads == 0) return;
  const auto kernel = own_kernel(file, function);
  const Grid grid{{threads, 1, 1}, {std::min(threads, kernel->max_threads_per_group()), 1, 1}};
  State::current().stream().dispatch(kernel, arguments.all(), grid);
}

void dispatch(const std::string& file, const std::string& function, const Arguments& arguments,
              const Grid& grid) {
  if (std::ranges::find(grid.threads, 0u) != grid.threads.end()) return;
  State::current().stream().dispatch(own_kernel(file, function), arguments.all(), grid);
}

}  // namespace menagerie::metal
