// What a kernel call needs besides its operands: memory, prepared kernels, a number of threads,
// what the backend keeps. The program that is running lends them to its thread; a call from outside
// any program uses the thread's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/arena.h"
#include "common/backend.h"
#include "common/kernel_cache.h"
#include "common/profile.h"

namespace menagerie {

class Bundle;
using Tensors = std::vector<std::unique_ptr<Tensor>>;

class Context {
 public:
  // The bundle is the one whose program runs here, null outside of any.
  explicit Context(int32_t threads, std::shared_ptr<const Bundle> bundle = nullptr);

  // The context of the program now running in this thread, else this thread's own.
  static Context& current();

  const std::shared_ptr<Arena>& arena() const { return arena_; }
  KernelCache& kernels() { return kernels_; }
  int32_t threads() const { return threads_; }
  void set_threads(int32_t threads);

  const Bundle* bundle() const { return bundle_.get(); }
  BackendState& backend_state();

  void count_kernel() { kernel_calls_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t kernel_calls() const { return kernel_calls_.load(std::memory_order_relaxed); }

  // Where the time of this context's kernels is noted; null unless it was asked for.
  Profile* profile() { return profile_.get(); }
  void set_profiling(bool on) { profile_ = on ? std::make_unique<Profile>() : nullptr; }

  // Where second handles made from now on are recorded too, with their ownership; null: nowhere.
  // AOTInductor makes one of each constant that it is lent, and never gives it back.
  void keep_second_handles(Tensors* keeper) { keeper_ = keeper; }
  Tensors* second_handles() { return keeper_; }

  // Lends a context to the calling thread, with its number of threads, until destroyed.
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

}  // namespace menagerie
