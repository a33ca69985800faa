#include <omp.h>

#include "common/platform/threads.h"

namespace menagerie::threads {

int32_t available() { return omp_get_num_procs(); }

int32_t chosen() { return omp_get_max_threads(); }

void choose(int32_t count) { omp_set_num_threads(count); }

}  // namespace menagerie::threads
