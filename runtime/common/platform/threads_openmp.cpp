// libgomp's own entry points, declared here because not every compiler brings its header. They are
// part of its binary interface: GOMP_parallel since GOMP_4.0, the omp_ functions since OMP_1.0.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <system_error>
#include <thread>

#include "common/platform/machine.h"
#include "common/platform/threads.h"

extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_num_procs();
int omp_get_max_threads();
void omp_set_num_threads(int count);
}

namespace menagerie::threads {
namespace {

// Keep a team asleep for good. While libgomp has more threads than processors, as it nearly has
// with the runs' own, it spins for a microsecond at a barrier, not for milliseconds.
void keep_idle_team() {
  const int32_t missing = omp_get_num_procs() - available();
  GOMP_parallel([](void*) {}, nullptr, static_cast<unsigned>(missing) + 3, 0);
  while (true) ::pause();
}

void sleep_when_idle() {
  static std::once_flag once;
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  std::call_once(once, [] {
    sigset_t all, before;  // the application's own threads handle its signals
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread(keep_idle_team).detach();
    } catch (const std::system_error&) {  // no thread is available: they go on spinning
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  });
}

double seconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

}  // namespace

int32_t available() {
  static const int32_t quota = machine::processor_quota();
  return std::min(omp_get_num_procs(), quota);
}

int32_t chosen() { return omp_get_max_threads(); }

void choose(int32_t count) { omp_set_num_threads(count); }

Run::Run(int32_t threads, int32_t most) : several_(std::max(threads, most) > 1) {
  most_by_work = most;
  if (!several_) return;
  elapsed_ = seconds(CLOCK_MONOTONIC);
  computed_ = seconds(CLOCK_THREAD_CPUTIME_ID);
}

Run::~Run() {
  constexpr double kShortest = 2e-3;  // of a run, or of a wait, that counts
  static std::atomic<int32_t> late_in_a_row = 0;
  most_by_work = 0;
  if (!several_) return;
  const double elapsed = seconds(CLOCK_MONOTONIC) - elapsed_;
  if (elapsed < kShortest) return;
  const double waited = elapsed - (seconds(CLOCK_THREAD_CPUTIME_ID) - computed_);
  late_in_a_row = waited > std::max(kShortest, elapsed / 4) ? late_in_a_row + 1 : 0;
  if (late_in_a_row == 3) sleep_when_idle();
}

void run_on_each(void (*run)(void*), void* data, size_t most) {
  const auto wanted = std::min<size_t>(most, static_cast<size_t>(chosen()));
  GOMP_parallel(run, data, static_cast<unsigned>(wanted), 0);
}

}  // namespace menagerie::threads
