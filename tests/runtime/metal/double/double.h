// Doubles of Metal's classes that the Apple device uses. They compute by the
// emulated device, and end the process with a fact wherever Apple's documentation, or Metal's
// validation, forbids what is done. A rule's source is next to it: pages of
// developer.apple.com/documentation by their last part.
#pragma once

#import <Metal/Metal.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "metal/device.h"
#include "metal/emulated/memory.h"
#include "objc_runtime.h"

// What a test changes about the device, by name (menagerie_double_set).
struct Knobs {
  int64_t most_buffer_bytes = int64_t{1} << 33;  // maxBufferLength
  int64_t empty_wraps = 0;        // wrapped buffers have length zero, as on virtual Macs
  int64_t no_default_device = 0;  // a process without a session at the screen
  int64_t no_residency_sets = 0;  // the device gives none
  int64_t gpu_generation = 13;    // of the architecture's name
  int64_t phone = 0;              // the name ends as a phone's
  int64_t metal_4 = 1;            // 0: its shaders do not compile; 2: their sums err
  int64_t failing_buffer = -1;    // this command buffer, by number from now on, fails
};
Knobs& knobs();

// What the device was made to do since the last menagerie_double_reset(). Bytes are those of the
// operands that are in the device's own buffers, whole buffers for kernels; operations are those of
// products and convolutions, two a term.
struct Counts {
  int64_t dispatches = 0, by_units = 0, threads = 0, encoders = 0, commits = 0;
  int64_t bytes = 0, operations = 0;
};
Counts& counts();

using Work = std::function<void()>;

@interface DoubleBuffer : NSObject <MTLBuffer>
- (instancetype)initWithMemory:(std::shared_ptr<menagerie::metal::emulated::HostBuffer>)memory
                        length:(NSUInteger)length;
- (BOOL)isLent;
- (menagerie::metal::Region)regionAt:(NSUInteger)offset length:(NSUInteger)length;
@end

@interface DoubleCommandBuffer : NSObject <MTLCommandBuffer>
- (instancetype)initWithQueue:(id<MTLCommandQueue>)queue;
- (void)mustBeOpenFor:(const char*)action;
- (void)mustHaveNoEncoderFor:(const char*)action;
- (void)encoderHasEnded;
- (void)add:(Work)work keeping:(id)object;
- (void)execute;
@end

@interface NSMutableArray<ObjectType> : NSArray <ObjectType>
+ (instancetype)arrayWithCapacity:(NSUInteger)capacity;
- (void)addObject:(ObjectType)object;
@end

@interface NSException (Double)
+ (NSException*)exceptionWithReason:(const char*)text;
@end

@interface NSError (Double)
+ (NSError*)errorWithText:(const std::string&)text;
@end
