#include "metal/emulated/worker.h"

#include <algorithm>
#include <array>
#include <bit>
#include <sstream>
#include <utility>
#include <vector>

namespace menagerie::metal::emulated {

using menagerie::emulated::Access;
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
  at_simd_ = {};
  turns_.clear();
  next_turn_ = 0;
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
    menagerie_switch_stack(&stack_pointer_, fiber->stack_pointer);
    for (unsigned thread = first; thread < next; ++thread) fibers_[thread] = nullptr;
    if (fiber->finished) continue;
    fibers_[fiber->thread] = fiber;
    ++waiting_;
    ++used;
  }
}

// Each fiber switches to the next one, all from the same place: so a processor foretells where they
// return to, which it does not from a stack that switches to another place each time.
void Worker::take_turns() {
  next_turn_ = 1;
  menagerie_switch_stack(&stack_pointer_, turns_.front()->stack_pointer);
  for (const Fiber* fiber : turns_) {
    if (!fiber->finished) continue;
    fibers_[fiber->thread] = nullptr;
    --waiting_;
  }
  turns_.clear();
  next_turn_ = 0;
}

void Worker::body(Fiber* fiber) {
  static_cast<Worker*>(fiber->group)->kernel_->run(fiber);
  fiber->finished = true;
  switch_out(fiber);
}

__attribute__((always_inline)) inline void Worker::switch_out(Fiber* fiber) {
  auto* worker = static_cast<Worker*>(fiber->group);
  const bool ends =
      worker->next_turn_ == worker->turns_.size() || worker->finding_.fault != Fault::kNone;
  void* to = ends ? worker->stack_pointer_ : worker->turns_[worker->next_turn_++]->stack_pointer;
  menagerie_switch_stack(&fiber->stack_pointer, to);
}

void Worker::wait_for_group(Fiber* fiber, const void* site) {
  fiber->site = site;
  switch_out(fiber);
}

void Worker::wait_for_simd(Fiber* fiber, const void* site) {
  static_cast<Worker*>(fiber->group)->at_simd_[fiber->thread / kSimdWidth] |= 1U << fiber->lane;
  fiber->site = site;
  switch_out(fiber);
}

void Worker::report(Fiber* fiber, Fault fault, Access access) {
  static_cast<Worker*>(fiber->group)->note(fault, access, *fiber);
  switch_out(fiber);  // for good
}

void Worker::diverge(Fault fault, unsigned thread, unsigned other) {
  note(fault, {.other = other}, *fibers_[thread]);
}

void Worker::note(Fault fault, const Access& access, const Fiber& fiber) {
  finding_ = {.fault = fault, .access = access, .number = fiber.thread};
  for (int axis = 0; axis < 3; ++axis) {
    finding_.group[axis] = position[axis];
    finding_.thread[axis] = position[axis] * nominal[axis] + fiber.position[axis];
  }
}

// Lets the threads go on that wait for their SIMD group: none of it runs any more, so those that
// are not here are inactive. Whether there were any.
bool Worker::meet_in_simds() {
  bool any = false;
  for (unsigned simd = 0; simd * kSimdWidth < threads; ++simd) {
    while (at_simd_[simd] != 0 && finding_.fault == Fault::kNone) {
      meet(simd, std::exchange(at_simd_[simd], 0));
      any = true;
    }
  }
  return any;
}

void Worker::meet(unsigned simd, unsigned lanes) {
  const unsigned first = simd * kSimdWidth + std::countr_zero(lanes);
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const unsigned thread = simd * kSimdWidth + std::countr_zero(left);
    if (fibers_[thread]->site != fibers_[first]->site) {
      return diverge(Fault::kDivergentSimd, thread, first + 1);
    }
    turns_.push_back(fibers_[thread]);
  }
  simds[simd].active[simds[simd].turn] = lanes;
  simds[simd].turn = 1 - simds[simd].turn;
  simds[simd].clock = ++local.clock;
  take_turns();
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
  turns_.assign(fibers_.begin(), fibers_.begin() + threads);
  take_turns();
}

namespace {

using menagerie::emulated::Access;
using menagerie::emulated::Address;
using menagerie::emulated::Fault;
using menagerie::emulated::Group;
using menagerie::emulated::KernelEntry;
using menagerie::emulated::kManyThreads;
using menagerie::emulated::kThreadgroupBytes;
using menagerie::emulated::Range;
using menagerie::emulated::Variable;

std::string triple(const std::array<unsigned, 3>& xyz) {
  std::ostringstream text;
  text << '(' << xyz[0] << ", " << xyz[1] << ", " << xyz[2] << ')';
  return text.str();
}

// How far an address lies outside a range of bytes.
Address distance(Address address, Address low, Address bytes) {
  if (address < low) return low - address;
  return address < low + bytes ? 0 : address - low - bytes + 1;
}

// A stretch of memory that a kernel may touch, and what a person calls it.
struct Place {
  Address low;
  Address bytes;
  std::string name;
};

// Where an access to this address can have been meant to go. Numbers passed by value lie somewhere
// in the host's memory: only what is next to them is likely to be about them.
std::vector<Place> places(Address address, const KernelEntry& kernel, const Group& group,
                          std::span<const uint32_t> indices) {
  std::vector<Place> all;
  for (unsigned i = 0; i < group.local.count; ++i) {
    const Variable& variable = group.local.variables[i];
    all.push_back({reinterpret_cast<Address>(group.local.memory) + variable.offset, variable.bytes,
                   "a threadgroup variable"});
  }
  for (unsigned i = 0; i < group.range_count; ++i) {
    const Range& range = group.ranges[i];
    if (range.by_value && distance(address, range.low, range.bytes) > kMaxInlineBytes) continue;
    const char* name = kernel.names[indices[i]];
    all.push_back({range.low, range.bytes,
                   "argument " + std::to_string(indices[i]) +
                       (name == nullptr ? "" : " (" + std::string(name) + ")")});
  }
  return all;
}

// "at byte 400 of argument 1 (in_ptr0), which has 400 bytes": the place that is nearest.
std::string describe_place(Address address, const std::vector<Place>& places) {
  if (places.empty()) return "where nothing is";
  const Place& nearest = *std::ranges::min_element(
      places, {}, [&](const Place& place) { return distance(address, place.low, place.bytes); });
  std::ostringstream text;
  if (address < nearest.low) {
    text << nearest.low - address << " bytes before " << nearest.name;
  } else {
    text << "at byte " << address - nearest.low << " of " << nearest.name;
  }
  text << ", which has " << nearest.bytes << " bytes";
  return text.str();
}

std::string other_thread(unsigned other) {
  if (other == kManyThreads) return "several threads";
  return "thread " + std::to_string(other - 1);
}

}  // namespace

std::string describe(const Finding& finding, const KernelEntry& kernel, const Group& group,
                     std::span<const uint32_t> indices) {
  const Access& access = finding.access;
  std::ostringstream text;
  text << "kernel " << kernel.name << ", thread " << triple(finding.thread) << ", number "
       << finding.number << " of group " << triple(finding.group) << ": ";
  const char* verb = access.write ? "writes " : "reads ";
  switch (finding.fault) {
    case Fault::kOutOfBounds:
      text << verb << access.bytes << " bytes out of bounds, ";
      break;
    case Fault::kReadOnly:
      text << "writes " << access.bytes << " bytes to read-only memory, ";
      break;
    case Fault::kMisaligned:
      text << verb << access.bytes << " bytes misaligned, ";
      break;
    case Fault::kUninitialised:
      text << "reads uninitialised threadgroup memory, ";
      break;
    case Fault::kRace:
      text << verb << "what was touched by " << other_thread(access.other)
           << " of the group without a barrier between, ";
      break;
    case Fault::kInactiveLane:
      text << "reads lane " << access.other << " of its SIMD group, which is not active";
      break;
    case Fault::kDifferentMatrix:
      text << "means another matrix than lane 0 of its SIMD group";
      break;
    case Fault::kTooMuchLocal:
      text << "needs " << access.bytes << " bytes of threadgroup memory; there are "
           << kThreadgroupBytes;
      break;
    case Fault::kDivision:
      text << "divides an integer by zero, or overflows in dividing";
      break;
    case Fault::kDivergentBarrier:
      text << "waits at a barrier that thread " << access.other - 1 << " does not come to";
      break;
    case Fault::kDivergentSimd:
      text << "is at another SIMD operation than thread " << access.other - 1
           << " of its SIMD group";
      break;
    case Fault::kNone:
      break;
  }
  if (finding.fault < Fault::kInactiveLane) {  // those of memory
    text << describe_place(access.address, places(access.address, kernel, group, indices));
  }
  return text.str();
}

}  // namespace menagerie::metal::emulated
