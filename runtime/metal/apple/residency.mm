#import "metal/apple/residency.h"

#include <utility>

#import "metal/apple/support.h"

namespace menagerie::metal {

struct Residency::Kept {
  Residency& residency;
  std::shared_ptr<const void> owner;
  std::vector<id<MTLBuffer>> buffers;

  // The set lets go of the buffers before they, and then their memory, go.
  ~Kept() {
    @autoreleasepool {
      const std::lock_guard lock(residency.mutex_);
      for (id<MTLBuffer> buffer : buffers) [residency.set_ removeAllocation:buffer];
      [residency.set_ commit];
    }
  }
};

Residency::Residency(id<MTLDevice> device) {
  if (@available(macOS 15.0, *)) {
    in_pool("making a residency set", [&] {
      NSError* error = nil;  // without a set the system decides
      set_ = [device newResidencySetWithDescriptor:[[MTLResidencySetDescriptor alloc] init]
                                             error:&error];
    });
  }
}

std::shared_ptr<const void> Residency::keep(std::vector<id<MTLBuffer>> buffers,
                                            std::shared_ptr<const void> owner) {
  const std::lock_guard lock(mutex_);
  for (id<MTLBuffer> buffer : buffers) [set_ addAllocation:buffer];
  [set_ commit];
  [set_ requestResidency];
  return std::shared_ptr<const Kept>(new Kept{*this, std::move(owner), std::move(buffers)});
}

void Residency::serve(id<MTLCommandQueue> queue) const {
  if (set_ != nil) [queue addResidencySet:set_];
}

}  // namespace menagerie::metal
