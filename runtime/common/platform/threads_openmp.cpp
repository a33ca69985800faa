// libgomp's own entry points, declared here because not every compiler brings its header. They are
// part of its binary interface: GOMP_parallel since GOMP_4.0, the omp_ functions since OMP_1.0.
#include "common/platform/parallel.h"
#include "common/platform/threads.h"

extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_num_procs();
int omp_get_max_threads();
void omp_set_num_threads(int count);
}

namespace menagerie::threads {

int32_t available() { return omp_get_num_procs(); }

int32_t chosen() { return omp_get_max_threads(); }

void choose(int32_t count) { omp_set_num_threads(count); }

void run_on_each(void (*run)(void*), void* data, size_t most) {
  const auto wanted = std::min<size_t>(most, static_cast<size_t>(chosen()));
  GOMP_parallel(run, data, static_cast<unsigned>(wanted), 0);
}

}  // namespace menagerie::threads
