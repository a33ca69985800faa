// What a kernel call needs besides its operands: memory, prepared kernels, a number of threads, the
// backend's state and a profile. The running program lends them to its thread; a call from outside
// any program uses the thread's own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/backend.h"
#include "common/caches.h"
#include "common/memory.h"

namespace menagerie {

class Context;

// All calls of one kernel. `flops` counts a multiplication and an addition as two, in products and
// convolutions only; `bytes` counts the operands and the result once each.
struct KernelTime {
  uint64_t calls = 0;
  std::chrono::nanoseconds time{0};
  double flops = 0;
  double bytes = 0;
};

// The time that runs spend in each kernel, generated or of the runtime, by its name.
class Profile {
 public:
  // Return kernels by name, with the operands' sizes where the kernel has reported them.
  const std::map<std::string, KernelTime, std::less<>>& kernels() const { return kernels_; }

  void begin(std::string_view kernel, double bytes = 0);
  void end();

  // Add what the running kernel computes, and its operands, which become part of its name; do
  // nothing outside a kernel.
  void add_work(const std::string& operands, double flops, double bytes);

 private:
  using Clock = std::chrono::steady_clock;

  std::map<std::string, KernelTime, std::less<>> kernels_;
  bool running_ = false;
  std::string label_;  // name of the running kernel
  KernelTime call_;
  Clock::time_point began_;
};

// A timer of what runs during its lifetime, if the context keeps a profile.
class TimedKernel {
 public:
  TimedKernel(Context& context, std::string_view name);
  TimedKernel(const TimedKernel&) = delete;
  TimedKernel& operator=(const TimedKernel&) = delete;
  ~TimedKernel();

 private:
  Profile* profile_;
};

class Bundle;
using Tensors = std::vector<std::unique_ptr<Tensor>>;

class Context {
 public:
  // `bundle` is the one whose program runs here; null outside any program.
  explicit Context(int32_t threads, std::shared_ptr<const Bundle> bundle = nullptr);

  // Return the context of the program running in this thread, else this thread's own.
  static Context& current();

  const std::shared_ptr<Arena>& arena() const { return arena_; }
  KernelCache& kernels() { return kernels_; }
  int32_t threads() const { return threads_; }
  void set_threads(int32_t threads);

  const Bundle* bundle() const { return bundle_.get(); }
  BackendState& backend_state();

  void count_kernel() { kernel_calls_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t kernel_calls() const { return kernel_calls_.load(std::memory_order_relaxed); }

  // Return the profile of this context's kernels; null unless profiling is on.
  Profile* profile() { return profile_.get(); }
  void set_profiling(bool on) { profile_ = on ? std::make_unique<Profile>() : nullptr; }

  // Record second handles made from now on in `keeper`, which owns them; null: nowhere. AOTInductor
  // makes one of each constant that it is lent and never releases it.
  void keep_second_handles(Tensors* keeper) { keeper_ = keeper; }
  Tensors* second_handles() { return keeper_; }

  // Lend a context and its number of threads to the calling thread, until destroyed.
  class Loan {
   public:
    explicit Loan(Context& context);
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan();

   private:
    Context* previous_;
    int32_t previous_threads_;
  };

 private:
  std::shared_ptr<Arena> arena_ = std::make_shared<Arena>();
  KernelCache kernels_;
  int32_t threads_;
  std::atomic<uint64_t> kernel_calls_{0};
  std::unique_ptr<Profile> profile_;
  Tensors* keeper_ = nullptr;
  std::shared_ptr<const Bundle> bundle_;
  std::unique_ptr<BackendState> state_;
};

// Return what make() -> std::shared_ptr<T> makes of a constant under this key: once, whichever
// programs ask. The file's pages behind the constant are released.
template <class T, class Make>
std::shared_ptr<T> made_once(const Key& key, const Tensor& constant, Make&& make) {
  return Context::current().kernels().get<T>(key, [&] {
    return ConstantCache::of_process().get<T>(key, constant.storage, [&] {
      const std::shared_ptr<T> made = make();
      release_pages(*constant.storage);
      return made;
    });
  });
}

}  // namespace menagerie
