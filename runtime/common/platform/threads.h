// How many threads the calling thread's parallel regions use.
#pragma once

#include <cstdint>

namespace menagerie::threads {

// Processors this process may use: of its affinity mask, and no more than its control group's
// quota.
int32_t available();
int32_t chosen();
void choose(int32_t count);

// The most threads that a kernel of the current run may choose by its work; 0: the number is given.
inline thread_local int32_t most_by_work = 0;

// For the time of a program's run. After three in a row with several threads that had to wait for a
// processor, idle threads sleep soon instead of spinning, unless the user has set how they wait.
class Run {
 public:
  Run(int32_t threads, int32_t most);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run();

 private:
  bool several_;
  double elapsed_ = 0, computed_ = 0;  // seconds, when it began
};

}  // namespace menagerie::threads
