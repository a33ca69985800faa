// Where nothing on the host runs in parallel, the number is only kept.
#include <algorithm>
#include <thread>

#include "common/platform/parallel.h"
#include "common/platform/threads.h"

namespace menagerie::threads {
namespace {
thread_local int32_t kept = 1;
}

int32_t available() {
  return static_cast<int32_t>(std::max(std::thread::hardware_concurrency(), 1u));
}

int32_t chosen() { return kept; }

void choose(int32_t count) { kept = count; }

void run_on_each(void (*run)(void*), void* data, size_t) { run(data); }

}  // namespace menagerie::threads
