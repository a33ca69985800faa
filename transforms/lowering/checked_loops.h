// Stands before kernels whose loops check indices. An exception that left the body of an
// OpenMP loop would end the process; so the body's is kept, and thrown where the function ends.
#pragma once

#include <atomic>
#include <exception>

namespace {

class LoopFault {
 public:
  // To be called while an exception is handled; the first one is kept.
  void keep() noexcept {
    if (!taken_.test_and_set()) fault_ = std::current_exception();
  }
  // To be called when all threads are through.
  void rethrow() const {
    if (fault_) std::rethrow_exception(fault_);
  }

 private:
  std::atomic_flag taken_;
  std::exception_ptr fault_;
};

}  // namespace
