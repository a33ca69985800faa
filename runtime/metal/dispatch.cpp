#include "metal/dispatch.h"

#include <algorithm>

#include "metal/own_kernels.h"

namespace menagerie::metal {

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
