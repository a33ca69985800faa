// The number of threads that parallel regions use, and the sharing of work among them: libgomp's,
// which the model libraries and the kernel library use as well.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>

namespace menagerie::threads {

// Call run(data) at once on the chosen number of threads, but on no more than `most`.
void run_on_each(void (*run)(void*), void* data, size_t most);

// Tasks numbered from 0, which workers take until none is left.
class Tasks {
 public:
  Tasks(size_t count, size_t chunk) : count_(count), chunk_(std::max<size_t>(chunk, 1)) {}

  // Take the next tasks, from `first` to before `last`; return false when none is left.
  bool take(size_t& first, size_t& last) {
    first = next_.fetch_add(chunk_, std::memory_order_relaxed);
    last = std::min(first + chunk_, count_);
    return first < count_;
  }

 private:
  std::atomic<size_t> next_{0};
  size_t count_;
  size_t chunk_;
};

// Call worker(tasks) on several threads; each takes tasks until none is left. A worker may throw:
// an exception must not leave a parallel region, so the first one is rethrown at its end.
template <class Worker>
void share_out(size_t count, size_t chunk, Worker&& worker) {
  struct Region {
    Tasks tasks;
    Worker& worker;
    std::mutex mutex;
    std::exception_ptr fault;
  } region{{count, chunk}, worker, {}, {}};
  const auto run = [](void* data) {
    Region& shared = *static_cast<Region*>(data);
    try {
      shared.worker(shared.tasks);
    } catch (...) {
      const std::lock_guard lock(shared.mutex);
      if (!shared.fault) shared.fault = std::current_exception();
    }
  };
  const size_t chunks = (count + chunk - 1) / std::max<size_t>(chunk, 1);
  if (chunks > 1) {
    run_on_each(run, &region, chunks);
  } else if (count > 0) {
    run(&region);
  }
  if (region.fault) std::rethrow_exception(region.fault);
}

// Call body(task) for `count` tasks, of which a worker takes `chunk` at a time.
template <class Body>
void for_each(int64_t count, int64_t chunk, const Body& body) {
  share_out(static_cast<size_t>(count), static_cast<size_t>(chunk), [&](Tasks& left) {
    for (size_t next = 0, end = 0; left.take(next, end);) {
      for (; next < end; ++next) body(static_cast<int64_t>(next));
    }
  });
}

// Return the number of processors this process may use: those of its affinity mask, limited by its
// control group's quota.
int32_t available();
int32_t chosen();
void choose(int32_t count);

// The most threads that a kernel may choose by its work in the current run; 0: the number is fixed.
inline thread_local int32_t most_by_work = 0;

// The scope of a program's run. After three in a row with several threads that had to wait for a
// processor, idle threads sleep soon instead of spinning, unless the user set how they wait.
class Run {
 public:
  Run(int32_t threads, int32_t most);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run();

 private:
  bool several_;
  double elapsed_ = 0, computed_ = 0;  // seconds, at its beginning
};

}  // namespace menagerie::threads
