// One thread of the host that runs threadgroups, one after another.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "metal/emulated/fibers.h"
#include "metal/emulated/memory.h"

namespace menagerie::metal::emulated {

// What a thread did that a GPU would punish, and where.
struct Finding {
  menagerie::emulated::Fault fault = menagerie::emulated::Fault::kNone;
  menagerie::emulated::Access access{};
  std::array<unsigned, 3> group{};
  std::array<unsigned, 3> thread{};  // in the grid
  unsigned number = 0;               // of the thread in its group
};

// The group's own record comes first, so that a fiber's group leads back here.
class Worker : private menagerie::emulated::Group {
 public:
  using Group = menagerie::emulated::Group;
  using KernelEntry = menagerie::emulated::KernelEntry;

  Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Takes over what is the same for all groups of a dispatch: ranges, arguments, extents.
  void prepare(const Group& common, const KernelEntry& kernel);
  // Runs the group at this position; what it did wrong, if anything.
  std::optional<Finding> run_group(const std::array<unsigned, 3>& at);

  // The record that shaders see, for messages.
  const Group& group() const { return *this; }

 private:
  using Fault = menagerie::emulated::Fault;

  static void body(Fiber* fiber);
  static void wait_for_group(Fiber* fiber, const void* site);
  static void wait_for_simd(Fiber* fiber, const void* site);
  static void report(Fiber* fiber, Fault fault, menagerie::emulated::Access access);

  static void switch_out(Fiber* fiber);
  void start_threads();
  void take_turns();
  bool meet_in_simds();
  void meet(unsigned simd, unsigned lanes);
  void meet_at_barrier();
  void diverge(Fault fault, unsigned thread, unsigned other);
  void note(Fault fault, const menagerie::emulated::Access& access, const Fiber& fiber);

  FiberPool pool_;
  std::shared_ptr<HostBuffer> local_memory_;
  std::vector<menagerie::emulated::Note> written_, read_;
  std::vector<Fiber*> fibers_;  // by thread; null once it has finished
  std::vector<Fiber*> turns_;   // those that go on, one after the other
  size_t next_turn_ = 0;
  std::array<unsigned, menagerie::emulated::kMaxSimds> at_simd_{};  // lanes that wait for others
  const KernelEntry* kernel_ = nullptr;
  void* stack_pointer_ = nullptr;  // of the host's own stack
  unsigned waiting_ = 0;
  Finding finding_;
};

// One line naming the kernel, the thread and the fact. `indices` are the arguments that the group's
// ranges belong to.
std::string describe(const Finding& finding, const menagerie::emulated::KernelEntry& kernel,
                     const menagerie::emulated::Group& group, std::span<const uint32_t> indices);

}  // namespace menagerie::metal::emulated
