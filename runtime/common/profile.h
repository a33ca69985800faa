// Where the time of runs goes: every kernel by its name, generated ones and those of the runtime.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace menagerie {

class Context;

// All calls of one kernel. `flops` counts a multiplication and an addition as two, of products and
// convolutions alone; `bytes` are those of the operands and the result, each once.
struct KernelTime {
  uint64_t calls = 0;
  std::chrono::nanoseconds time{0};
  double flops = 0;
  double bytes = 0;
};

class Profile {
 public:
  // By name, with the operands' sizes where the kernel has told them.
  const std::map<std::string, KernelTime, std::less<>>& kernels() const { return kernels_; }

  void begin(std::string_view kernel, double bytes = 0);
  void end();

  // What the kernel that has begun computes, and on what, which becomes part of its name; without
  // effect outside of one.
  void add_work(const std::string& operands, double flops, double bytes);

 private:
  using Clock = std::chrono::steady_clock;

  std::map<std::string, KernelTime, std::less<>> kernels_;
  bool running_ = false;
  std::string label_;  // of what is running
  KernelTime call_;
  Clock::time_point began_;
};

// Times what lies between its making and its end, where the context keeps a profile.
class TimedKernel {
 public:
  TimedKernel(Context& context, std::string_view name);
  TimedKernel(const TimedKernel&) = delete;
  TimedKernel& operator=(const TimedKernel&) = delete;
  ~TimedKernel();

 private:
  Profile* profile_;
};

}  // namespace menagerie
