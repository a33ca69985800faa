#include "common/context.h"

#include <utility>

#include "common/bundle.h"
#include "common/error.h"
#include "common/platform/threads.h"

namespace menagerie {
namespace {
thread_local Context* lent = nullptr;
constexpr int32_t kMostThreads = 1024;
}  // namespace

Context::Context(int32_t threads, std::shared_ptr<const Bundle> bundle)
    : threads_(1), bundle_(std::move(bundle)) {
  set_threads(threads);
}

void Context::set_threads(int32_t threads) {
  require(threads >= 0 && threads <= kMostThreads, "threads must lie in 0..", kMostThreads,
          ", not ", threads);
  threads_ = threads == 0 ? threads::available() : threads;
}

Context& Context::current() {
  if (lent != nullptr) return *lent;
  thread_local Context own(threads::chosen());
  own.threads_ = threads::chosen();
  return own;
}

BackendState& Context::backend_state() {
  if (state_ == nullptr) state_ = backend::make_state();
  return *state_;
}

Context::Loan::Loan(Context& context) : previous_(lent), previous_threads_(threads::chosen()) {
  lent = &context;
  threads::choose(context.threads());
}

Context::Loan::~Loan() {
  lent = previous_;
  threads::choose(previous_threads_);
}

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
