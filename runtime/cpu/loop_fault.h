// What the body of a parallel loop throws, kept until the loop is over: an exception that left an
// OpenMP region would end the process.
#pragma once

#include <exception>

namespace menagerie {

class LoopFault {
 public:
  // To be called while an exception is handled; the first one is kept.
  void keep() noexcept {
#pragma omp critical(menagerie_loop_fault)
    if (!first_) first_ = std::current_exception();
  }
  // To be called when all threads are through.
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace menagerie
