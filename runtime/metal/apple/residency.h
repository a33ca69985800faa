// Which memory the GPU finds resident at any time: that of weights.
#pragma once

#import <Metal/Metal.h>

#include <memory>
#include <mutex>
#include <vector>

namespace menagerie::metal {

// Without a residency set the system may unwire memory that no work has touched for a while, and
// the next run waits until it is wired again
// (developer.apple.com/documentation/metal/simplifying-gpu-resource-management-with-residency-sets).
// Safe to use from several threads. Does nothing where the system has no such sets.
class Residency {
 public:
  explicit Residency(id<MTLDevice> device);

  // Buffers stay resident for as long as the result lives, and the owner of their memory with it.
  std::shared_ptr<const void> keep(std::vector<id<MTLBuffer>> buffers,
                                   std::shared_ptr<const void> owner);

  // All of a queue's work finds them resident.
  void serve(id<MTLCommandQueue> queue) const;

 private:
  struct Kept;

  std::mutex mutex_;  // a set is changed by one thread at a time
  id<MTLResidencySet> set_ = nil;
};

}  // namespace menagerie::metal
