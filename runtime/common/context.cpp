#include "common/context.h"

#include <omp.h>

#include "common/error.h"

namespace menagerie {
namespace {
thread_local Context* lent = nullptr;
constexpr int32_t kMostThreads = 1024;
}  // namespace

int32_t available_processors() { return omp_get_num_procs(); }

Context::Context(int32_t threads) : threads_(1) { set_threads(threads); }

void Context::set_threads(int32_t threads) {
  require(threads >= 0 && threads <= kMostThreads, "threads must lie in 0..", kMostThreads,
          ", not ", threads);
  threads_ = threads == 0 ? available_processors() : threads;
}

Context& Context::current() {
  if (lent != nullptr) return *lent;
  thread_local Context own(omp_get_max_threads());
  own.threads_ = omp_get_max_threads();
  return own;
}

Context::Loan::Loan(Context& context) : previous_(lent), previous_threads_(omp_get_max_threads()) {
  lent = &context;
  omp_set_num_threads(context.threads());
}

Context::Loan::~Loan() {
  lent = previous_;
  omp_set_num_threads(previous_threads_);
}

}  // namespace menagerie
