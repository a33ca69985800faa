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

}  // namespace menagerie
