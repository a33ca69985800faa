// Stacks that one thread of the host runs by turns: the threads of a threadgroup.
#pragma once

#include <cstddef>
#include <vector>

#include "metal/emulated/prelude/abi.h"

namespace menagerie::metal::emulated {

using menagerie::emulated::Fiber;

// Keeps on as many fibers as a thread of the host has needed at once.
class FiberPool {
 public:
  // Called once for each fiber that is resumed for the first time; must not return.
  using Body = void (*)(Fiber*);

  explicit FiberPool(Body body) : body_(body) {}
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;
  ~FiberPool();

  // The fiber with this number, as if never run. Throws std::bad_alloc.
  Fiber* fresh(size_t number);

 private:
  static constexpr size_t kBlock = 64;  // fibers a mapping

  void grow();

  Body body_;
  std::vector<void*> blocks_;
};

// Leaves the running stack, noting where in *from, and goes on where `to` was noted.
extern "C" __attribute__((visibility("hidden"))) void menagerie_switch_stack(void** from, void* to);

}  // namespace menagerie::metal::emulated
