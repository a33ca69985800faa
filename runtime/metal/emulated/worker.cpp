#include "metal/emulated/worker.h"

#include <algorithm>
#include <bit>

namespace menagerie::metal::emulated {

using menagerie::emulated::Access;
using menagerie::emulated::FiberState;
using menagerie::emulated::Host;
using menagerie::emulated::kLocalBytes;
using menagerie::emulated::kMaxThreads;
using menagerie::emulated::kSimdWidth;

Worker::Worker()
    : Group{},
      pool_(&body),
      local_memory_(allocate_buffer(kLocalBytes)),
      written_(kLocalBytes),
      read_(kLocalBytes),
      fibers_(kMaxThreads) {
  static const Host functions = {&wait_for_group, &wait_for_simd, &report};
  host = &functions;
  local.memory = static_cast<unsigned char*>(local_memory_->contents());
  local.written = written_.data();
  local.read = read_.data();
  local.clock = 1;
}

void Worker::prepare(const Group& common, const KernelEntry& kernel) {
  kernel_ = &kernel;
  ranges = common.ranges;
  range_count = common.range_count;
  arguments = common.arguments;
  for (int axis = 0; axis < 3; ++axis) {
    grid[axis] = common.grid[axis];
    groups[axis] = common.groups[axis];
    nominal[axis] = common.nominal[axis];
  }
  local.used = local.end = local.count = 0;
}

std::optional<Finding> Worker::run_group(const std::array<unsigned, 3>& at) {
  threads = 1;
  for (int axis = 0; axis < 3; ++axis) {
    position[axis] = at[axis];
    cursor[axis] = 0;
    size[axis] = std::min(nominal[axis], grid[axis] - at[axis] * nominal[axis]);
    threads *= size[axis];
  }
  next = 0;
  waiting_ = 0;
  finding_ = {};
  local.group_clock = local.barrier_clock = ++local.clock;
  for (unsigned simd = 0; simd * kSimdWidth < threads; ++simd) simds[simd].clock = local.clock;
  start_threads();
  while (waiting_ > 0 && finding_.fault == Fault::kNone) {
    if (!meet_in_simds() && waiting_ > 0 && finding_.fault == Fault::kNone) meet_at_barrier();
  }
  if (finding_.fault == Fault::kNone) return std::nullopt;
  return finding_;
}

// A fiber becomes one thread after another until one of them waits; then the next fiber starts. So
// a kernel without barriers runs as a plain loop.
void Worker::start_threads() {
  unsigned used = 0;
  while (next < threads && finding_.fault == Fault::kNone) {
    const unsigned first = next;
    Fiber* fiber = pool_.fresh(used);
    fiber->group = this;
    resume(fiber);
    for (unsigned thread = first; thread < next; ++thread) fibers_[thread] = nullptr;
    if (fiber->state == FiberState::kFinished) continue;
    fibers_[fiber->thread] = fiber;
    ++waiting_;
    ++used;
  }
}

void Worker::resume(Fiber* fiber) {
  fiber->state = FiberState::kRunning;
  menagerie_switch_stack(&stack_pointer_, fiber->stack_pointer);
}

void Worker::body(Fiber* fiber) {
  static_cast<Worker*>(fiber->group)->kernel_->run(fiber);
  give_way(fiber, FiberState::kFinished, nullptr);
}

void Worker::give_way(Fiber* fiber, FiberState state, const void* site) {
  fiber->state = state;
  fiber->site = site;
  menagerie_switch_stack(&fiber->stack_pointer, static_cast<Worker*>(fiber->group)->stack_pointer_);
}

void Worker::wait_for_group(Fiber* fiber, const void* site) {
  give_way(fiber, FiberState::kAtBarrier, site);
}

void Worker::wait_for_simd(Fiber* fiber, const void* site) {
  give_way(fiber, FiberState::kAtSimd, site);
}

void Worker::report(Fiber* fiber, Fault fault, Access access) {
  auto* worker = static_cast<Worker*>(fiber->group);
  Finding& finding = worker->finding_;
  finding.fault = fault;
  finding.access = access;
  finding.number = fiber->thread;
  for (int axis = 0; axis < 3; ++axis) {
    finding.group[axis] = worker->position[axis];
    finding.thread[axis] = worker->position[axis] * worker->nominal[axis] + fiber->position[axis];
  }
  give_way(fiber, FiberState::kFinished, nullptr);  // for good
}

void Worker::diverge(Fault fault, unsigned thread, unsigned other) {
  finding_.fault = fault;
  finding_.number = thread;
  finding_.access.other = other;
  for (int axis = 0; axis < 3; ++axis) {
    finding_.group[axis] = position[axis];
    finding_.thread[axis] = position[axis] * nominal[axis] + fibers_[thread]->position[axis];
  }
}

// Lets the threads go on that wait for their SIMD group: none of it runs any more, so those that
// are not here are inactive. Whether there were any.
bool Worker::meet_in_simds() {
  bool any = false;
  for (unsigned simd = 0; simd * kSimdWidth < threads; ++simd) {
    while (finding_.fault == Fault::kNone) {
      unsigned lanes = 0;
      for (unsigned lane = 0; lane < kSimdWidth && simd * kSimdWidth + lane < threads; ++lane) {
        const Fiber* fiber = fibers_[simd * kSimdWidth + lane];
        if (fiber != nullptr && fiber->state == FiberState::kAtSimd) lanes |= 1U << lane;
      }
      if (lanes == 0) break;
      meet(simd, lanes);
      any = true;
    }
  }
  return any;
}

void Worker::meet(unsigned simd, unsigned lanes) {
  const unsigned first = simd * kSimdWidth + std::countr_zero(lanes);
  for (unsigned lane = 0; lane < kSimdWidth; ++lane) {
    const unsigned thread = simd * kSimdWidth + lane;
    if ((lanes >> lane & 1) != 0 && fibers_[thread]->site != fibers_[first]->site) {
      return diverge(Fault::kDivergentSimd, thread, first + 1);
    }
  }
  simds[simd].active[simds[simd].turn] = lanes;
  simds[simd].turn = 1 - simds[simd].turn;
  simds[simd].clock = ++local.clock;
  for (unsigned lane = 0; lane < kSimdWidth && finding_.fault == Fault::kNone; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    Fiber*& fiber = fibers_[simd * kSimdWidth + lane];
    resume(fiber);
    if (fiber->state != FiberState::kFinished) continue;
    fiber = nullptr;
    --waiting_;
  }
}

// Every thread that has not finished waits at a barrier.
void Worker::meet_at_barrier() {
  const Fiber* first = nullptr;
  for (unsigned thread = 0; thread < threads && first == nullptr; ++thread) first = fibers_[thread];
  for (unsigned thread = 0; thread < threads; ++thread) {
    if (fibers_[thread] == nullptr) {
      return diverge(Fault::kDivergentBarrier, first->thread, thread + 1);
    }
    if (fibers_[thread]->site != first->site) {
      return diverge(Fault::kDivergentBarrier, thread, first->thread + 1);
    }
  }
  local.barrier_clock = ++local.clock;
  for (unsigned thread = 0; thread < threads && finding_.fault == Fault::kNone; ++thread) {
    resume(fibers_[thread]);
    if (fibers_[thread]->state != FiberState::kFinished) continue;
    fibers_[thread] = nullptr;
    --waiting_;
  }
}

}  // namespace menagerie::metal::emulated
