#include "common/profile.h"

#include "common/context.h"

namespace menagerie {

void Profile::begin(std::string_view kernel, double bytes) {
  label_ = kernel;
  call_ = {.calls = 1, .bytes = bytes};
  running_ = true;
  began_ = Clock::now();
}

void Profile::end() {
  if (!running_) return;
  const auto ended = Clock::now();
  KernelTime& sum = kernels_[label_];
  sum.time += ended - began_;
  sum.calls += call_.calls;
  sum.flops += call_.flops;
  sum.bytes += call_.bytes;
  running_ = false;
}

void Profile::add_work(const std::string& operands, double flops, double bytes) {
  if (!running_) return;
  label_ += " " + operands;
  call_.flops += flops;
  call_.bytes += bytes;
}

TimedKernel::TimedKernel(Context& context, std::string_view name) : profile_(context.profile()) {
  if (profile_ != nullptr) profile_->begin(name);
}

TimedKernel::~TimedKernel() {
  if (profile_ != nullptr) profile_->end();
}

}  // namespace menagerie
