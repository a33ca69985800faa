// The part of Metal Performance Shaders that the Apple device uses, so that Linux can compile it.
// Each type is followed by its page below
// developer.apple.com/documentation/metalperformanceshaders/.
#pragma once

#import <Metal/Metal.h>

// mpsdatatype; bfloat16 since macOS 14
typedef uint32_t MPSDataType;
static const MPSDataType MPSDataTypeFloatBit = 0x10000000;
static const MPSDataType MPSDataTypeAlternateEncodingBit = 0x80000000;
static const MPSDataType MPSDataTypeFloat32 = MPSDataTypeFloatBit | 32;
static const MPSDataType MPSDataTypeFloat16 = MPSDataTypeFloatBit | 16;
static const MPSDataType MPSDataTypeBFloat16 = MPSDataTypeAlternateEncodingBit | MPSDataTypeFloat16;

// mpscommandbuffer; its commands are those of mtlcommandbuffer, on the root buffer, which
// commitAndContinue commits and replaces
@interface MPSCommandBuffer : NSObject <MTLCommandBuffer>
- (void)commitAndContinue;
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)queue;
@property(readonly, nonatomic) id<MTLCommandBuffer> rootCommandBuffer;
@end

// mpsndarraydescriptor; preferPackedRows since macOS 15
@interface MPSNDArrayDescriptor : NSObject
+ (instancetype)descriptorWithDataType:(MPSDataType)type shape:(NSArray<NSNumber*>*)shape;
@property(nonatomic) BOOL preferPackedRows;
@end

// mpsndarray; with a buffer and an offset since macOS 15
@interface MPSNDArray : NSObject
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSNDArrayDescriptor*)descriptor;
@end
