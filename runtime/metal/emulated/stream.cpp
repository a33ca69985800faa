// The emulated command queue: it records, and does nothing before synchronize().
#include "metal/emulated/stream.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "common/error.h"
#include "metal/emulated/dispatch.h"
#include "metal/emulated/library.h"
#include "metal/emulated/memory.h"
#include "metal/emulated/products.h"

namespace menagerie::metal::emulated {
namespace {

using menagerie::emulated::KernelEntry;
using menagerie::emulated::kMaxArguments;
using menagerie::emulated::kMaxThreads;

void check_arguments(const KernelEntry& kernel, std::span<const Argument> arguments) {
  uint32_t set = 0;
  for (const Argument& argument : arguments) {
    require(argument.index < kMaxArguments, "kernel ", kernel.name, ": argument ", argument.index,
            " is not one of 0 to ", kMaxArguments - 1);
    set |= uint32_t{1} << argument.index;
    if (argument.region.buffer != nullptr) {
      checked_address(argument.region, 0, false, kernel.name);
    } else {
      require(argument.value_bytes > 0 && argument.value_bytes <= kMaxInlineBytes, "kernel ",
              kernel.name, ": argument ", argument.index, " is neither a buffer nor 1 to ",
              kMaxInlineBytes, " bytes");
    }
  }
  for (uint32_t index = 0; index < kMaxArguments; ++index) {
    require((kernel.buffers >> index & 1) == 0 || (set >> index & 1) != 0, "kernel ", kernel.name,
            ": argument ", index, " (", kernel.names[index], ") is not set");
  }
}

void check_grid(const KernelEntry& kernel, const Grid& grid) {
  uint64_t group = 1;
  for (int axis = 0; axis < 3; ++axis) {
    require(grid.threads[axis] > 0 && grid.threads[axis] <= UINT32_MAX && grid.group[axis] > 0 &&
                grid.group[axis] <= kMaxThreads,
            "kernel ", kernel.name, ": ", grid.threads[axis], " threads in groups of ",
            grid.group[axis], " along axis ", axis);
    group *= grid.group[axis];
  }
  const uint64_t most = std::min(kernel.max_threads, kMaxThreads);
  require(group <= most, "kernel ", kernel.name, ": a group of ", group,
          " threads; the kernel takes ", most);
}

class HostStream final : public Stream {
 public:
  void dispatch(const std::shared_ptr<Kernel>& kernel, std::span<const Argument> arguments,
                const Grid& grid) override {
    const KernelEntry& entry = static_cast<const HostKernel&>(*kernel).entry();
    check_arguments(entry, arguments);
    check_grid(entry, grid);
    commands_.push_back(
        [kernel, dispatch = Dispatch{&entry, {arguments.begin(), arguments.end()}, grid}] {
          run(dispatch);
        });
  }

  void matmul(const MatmulDescriptor& descriptor, const MatmulOperands& operands) override {
    check(descriptor, operands);
    commands_.push_back([descriptor, operands] { run(descriptor, operands); });
  }

  void convolution(const ConvolutionDescriptor& descriptor,
                   const ConvolutionOperands& operands) override {
    check(descriptor, operands);
    commands_.push_back([descriptor, operands] { run(descriptor, operands); });
  }

  // What follows a command that fails is dropped, as a GPU drops the rest of a command buffer.
  void synchronize() override {
    const auto commands = std::exchange(commands_, {});
    for (const auto& command : commands) command();
  }

 private:
  std::vector<std::function<void()>> commands_;
};

}  // namespace

std::unique_ptr<Stream> make_host_stream() { return std::make_unique<HostStream>(); }

}  // namespace menagerie::metal::emulated
