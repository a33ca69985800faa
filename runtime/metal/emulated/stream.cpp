// The emulated command queue: it records, and does nothing before synchronize().
#include "metal/emulated/stream.h"

#include <pmmintrin.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/platform/threads.h"
#include "metal/device.h"
#include "metal/emulated/memory.h"
#include "metal/emulated/prelude/abi.h"
#include "metal/emulated/shaders.h"
#include "metal/emulated/worker.h"

namespace menagerie::metal::emulated {
namespace {

using menagerie::emulated::Group;
using menagerie::emulated::KernelEntry;
using menagerie::emulated::kMaxArguments;
using menagerie::emulated::kMaxThreads;
using menagerie::emulated::Range;

// A dispatch whose arguments have been checked to be complete.
struct Dispatch {
  const menagerie::emulated::KernelEntry* kernel;
  Mode mode;
  std::vector<Argument> arguments;
  Grid grid;
  bool sampled = false;
};

// Single-precision subnormals are zero while a shader runs, as they are on every Apple GPU.
class Flushing {
 public:
  explicit Flushing(bool flushes) : before_(_mm_getcsr()) {
    if (flushes) _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
  }
  ~Flushing() { _mm_setcsr(before_); }
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;

 private:
  unsigned before_;
};

// Below this many threads of a grid, waking other threads of the host costs more than it gains.
constexpr uint64_t kWorthSpreading = 1024;
// Groups at the border of a grid do less.
constexpr uint64_t kPartsPerThread = 4;

// Arguments as a shader finds them.
struct Bound {
  std::vector<Range> ranges;
  std::vector<uint32_t> indices;  // of the argument that each range belongs to
  std::array<void*, kMaxArguments> addresses{};
};

Bound bind(const Dispatch& dispatch) {
  Bound bound;
  for (const Argument& argument : dispatch.arguments) {
    void* address = const_cast<std::byte*>(argument.value.data());
    size_t bytes = argument.value_bytes;
    bool writable = false;
    if (argument.region.buffer != nullptr) {
      const auto& buffer = static_cast<const HostBuffer&>(*argument.region.buffer);
      bytes = buffer.bytes() - argument.region.offset;
      address = static_cast<std::byte*>(buffer.contents()) + argument.region.offset;
      writable = buffer.writable();
    }
    bound.ranges.push_back({reinterpret_cast<menagerie::emulated::Address>(address), bytes,
                            writable, argument.region.buffer == nullptr});
    bound.indices.push_back(argument.index);
    bound.addresses[argument.index] = address;
  }
  return bound;
}

Group common_of(const Dispatch& dispatch, const Bound& bound) {
  Group group{};
  group.ranges = bound.ranges.data();
  group.range_count = static_cast<unsigned>(bound.ranges.size());
  group.arguments = bound.addresses.data();
  for (int axis = 0; axis < 3; ++axis) {
    const uint64_t threads = dispatch.grid.threads[axis];
    const uint64_t nominal = std::min(dispatch.grid.group[axis], threads);
    group.grid[axis] = static_cast<unsigned>(threads);
    group.nominal[axis] = static_cast<unsigned>(nominal);
    group.groups[axis] = static_cast<unsigned>((threads + nominal - 1) / nominal);
  }
  return group;
}

// A plain pointer, which can be asked for when the thread's objects are gone already: what a stream
// still has to do, it does at the end of the process.
thread_local Worker* worker = nullptr;

Worker& worker_of_this_thread() {
  struct Owner {
    ~Owner() { delete std::exchange(worker, nullptr); }
  };
  thread_local Owner owner;
  if (worker == nullptr) worker = new Worker;
  return *worker;
}

using Position = std::array<unsigned, 3>;

Position position_of(uint64_t group, const Group& common) {
  const uint64_t row = group / common.groups[0];
  return {static_cast<unsigned>(group % common.groups[0]),
          static_cast<unsigned>(row % common.groups[1]),
          static_cast<unsigned>(row / common.groups[1])};
}

// The groups that a dispatch runs, in order: all of them, or some of its corners and its middle.
class Groups {
 public:
  Groups(const Group& common, bool sampled) : common_(common) {
    if (!sampled) return;
    const auto [x, y, z] = common.groups;
    chosen_ = {
        {0, 0, 0}, {x / 2, y / 2, z / 2}, {0, y - 1, 0}, {x - 1, 0, z - 1}, {x - 1, y - 1, z - 1}};
    std::ranges::sort(chosen_);
    const auto equal = std::ranges::unique(chosen_);
    chosen_.erase(equal.begin(), equal.end());
  }
  uint64_t count() const {
    if (!chosen_.empty()) return chosen_.size();
    return uint64_t{common_.groups[0]} * common_.groups[1] * common_.groups[2];
  }
  Position operator[](uint64_t at) const {
    return chosen_.empty() ? position_of(at, common_) : chosen_[at];
  }

 private:
  const Group& common_;
  std::vector<Position> chosen_;
};

// What went wrong in a run of neighbouring groups, at the first of them that did wrong.
struct Outcome {
  std::string message;
  std::exception_ptr failure;
};

Outcome run_groups(const Dispatch& dispatch, const Bound& bound, const Group& common,
                   const Groups& groups, uint64_t begin, uint64_t end) {
  try {
    Worker& mine = worker_of_this_thread();
    const bool other = dispatch.mode == Mode::kOther;
    const Flushing flushing(!other);
    mine.prepare(common, *dispatch.kernel);
    for (uint64_t count = 0; count < end - begin; ++count) {
      const uint64_t at = other && dispatch.kernel->serial ? end - 1 - count : begin + count;
      const auto finding = mine.run_group(groups[at]);
      if (finding.has_value()) {
        return {describe(*finding, *dispatch.kernel, mine.group(), bound.indices), nullptr};
      }
    }
    return {};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

// Runs the threadgroups, spread over the threads of the calling thread's context. Fails with the
// first threadgroup, in order, that does what a GPU would punish.
void run_threadgroups(const Dispatch& dispatch) {
  const Bound bound = bind(dispatch);
  const Group common = common_of(dispatch, bound);
  const Groups groups(common, dispatch.sampled);
  const uint64_t work = uint64_t{common.grid[0]} * common.grid[1] * common.grid[2];
  const bool spread = !dispatch.kernel->serial && work >= kWorthSpreading;
  const uint64_t most = kPartsPerThread * static_cast<uint64_t>(threads::chosen());
  const uint64_t count = groups.count(), parts = spread ? std::min(count, most) : 1;
  std::vector<Outcome> outcomes(parts);
  threads::share_out(parts, 1, [&](threads::Tasks& tasks) {
    for (size_t part, end; tasks.take(part, end);) {
      outcomes[part] = run_groups(dispatch, bound, common, groups, count * part / parts,
                                  count * (part + 1) / parts);
    }
  });
  for (const Outcome& outcome : outcomes) {
    if (outcome.failure != nullptr) std::rethrow_exception(outcome.failure);
    require(outcome.message.empty(), outcome.message);
  }
}

void check_arguments(const KernelEntry& kernel, std::span<const Argument> arguments) {
  for (const Argument& argument : arguments) {
    require(argument.index < kMaxArguments, "kernel ", kernel.name, ": argument ", argument.index,
            " is not one of 0 to ", kMaxArguments - 1);
    if (argument.region.buffer != nullptr) {
      checked_address(argument.region, 0, false, kernel.name);
    } else {
      require(argument.value_bytes > 0 && argument.value_bytes <= kMaxInlineBytes, "kernel ",
              kernel.name, ": argument ", argument.index, " is neither a buffer nor 1 to ",
              kMaxInlineBytes, " bytes");
    }
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
    const bool plain = for_library_ && !sampling_ && current_mode() == Mode::kChecked;
    const Mode mode = plain ? Mode::kPlain : current_mode();
    const KernelEntry& entry = static_cast<const HostKernel&>(*kernel).entry(mode);
    check_arguments(entry, arguments);
    check_grid(entry, grid);
    Dispatch dispatch{&entry, mode, {arguments.begin(), arguments.end()}, grid, sampling_};
    commands_.push_back([kernel, dispatch = std::move(dispatch)] { run_threadgroups(dispatch); });
  }

  void for_library(const std::function<void()>& encode) override { during(for_library_, encode); }
  void sample(const std::function<void()>& encode) override { during(sampling_, encode); }

  void matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* addend,
              float alpha, float beta) override {
    commands_.push_back(product(out, a, b, addend, alpha, beta));
  }

  void convolution(const ConvolutionDescriptor& descriptor,
                   const ConvolutionOperands& operands) override {
    commands_.push_back(emulated::convolution(descriptor, operands));
  }

  // What follows a command that fails is dropped, as a GPU drops the rest of a command buffer.
  void synchronize() override {
    const auto commands = std::exchange(commands_, {});
    for (const auto& command : commands) command();
  }

 private:
  static void during(bool& flag, const std::function<void()>& encode) {
    const bool before = std::exchange(flag, true);
    try {
      encode();
    } catch (...) {
      flag = before;
      throw;
    }
    flag = before;
  }

  std::vector<std::function<void()>> commands_;
  bool sampling_ = false, for_library_ = false;
};

}  // namespace

std::unique_ptr<Stream> make_host_stream() { return std::make_unique<HostStream>(); }

}  // namespace menagerie::metal::emulated
