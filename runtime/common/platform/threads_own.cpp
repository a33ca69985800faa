// Threads of our own where there is no libgomp, made when first needed. They sleep between regions.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "common/platform/threads.h"

namespace menagerie::threads {
namespace {

thread_local int32_t kept = 1;

// The helpers of one calling thread.
class HelperThreads {
 public:
  HelperThreads() = default;
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;
  ~HelperThreads() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    begins_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }

  // Call body(data) on the calling thread and on `helpers` helpers.
  void run(void (*body)(void*), void* data, size_t helpers) {
    while (helpers_.size() < helpers) {
      helpers_.emplace_back([this, number = helpers_.size()] { help(number); });
    }
    {
      const std::lock_guard lock(mutex_);
      body_ = body;
      data_ = data;
      wanted_ = working_ = helpers;
      ++region_;
    }
    begins_.notify_all();
    body(data);
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return working_ == 0; });
  }

 private:
  void help(size_t number) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      begins_.wait(lock, [&] { return ends_ || (region_ != seen && number < wanted_); });
      if (ends_) return;
      seen = region_;
      lock.unlock();
      body_(data_);
      lock.lock();
      if (--working_ == 0) finished_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable begins_, finished_;
  std::vector<std::thread> helpers_;
  void (*body_)(void*) = nullptr;
  void* data_ = nullptr;
  size_t wanted_ = 0;
  size_t working_ = 0;
  uint64_t region_ = 0;
  bool ends_ = false;
};

}  // namespace

int32_t available() {
  return static_cast<int32_t>(std::max(std::thread::hardware_concurrency(), 1u));
}

Run::Run(int32_t, int32_t most) : several_(false) { most_by_work = most; }

Run::~Run() { most_by_work = 0; }

int32_t chosen() { return kept; }

void choose(int32_t count) { kept = count; }

void run_on_each(void (*run)(void*), void* data, size_t most) {
  const auto wanted = std::min(most, static_cast<size_t>(std::max(kept, 1)));
  if (wanted <= 1) return run(data);
  thread_local HelperThreads helpers;
  helpers.run(run, data, wanted - 1);
}

}  // namespace menagerie::threads
