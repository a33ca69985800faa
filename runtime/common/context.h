// What a kernel call needs besides its operands: memory, prepared kernels, a number of threads. The
// program that is running lends them to its thread; a call from outside any program uses the
// thread's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/arena.h"
#include "common/kernel_cache.h"

namespace menagerie {

struct Tensor;
using Tensors = std::vector<std::unique_ptr<Tensor>>;

class Context {
 public:
  explicit Context(int32_t threads);

  // The context of the program now running in this thread, else this thread's own.
  static Context& current();

  const std::shared_ptr<Arena>& arena() const { return arena_; }
  KernelCache& kernels() { return kernels_; }
  int32_t threads() const { return threads_; }
  void set_threads(int32_t threads);

  void count_kernel() { kernel_calls_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t kernel_calls() const { return kernel_calls_.load(std::memory_order_relaxed); }

  // Where second handles made from now on are recorded too, with their ownership; null: nowhere.
  // AOTInductor makes one of each constant that it is lent, and never gives it back.
  void keep_second_handles(Tensors* keeper) { keeper_ = keeper; }
  Tensors* second_handles() { return keeper_; }

  // Lends a context to the calling thread, with its number of OpenMP threads, until destroyed.
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
  Tensors* keeper_ = nullptr;
};

// Processors this process may run on.
int32_t available_processors();

}  // namespace menagerie
