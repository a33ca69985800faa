// The part of Metal that the Apple device uses, so that Linux can compile it. Each type is followed
// by its page below developer.apple.com/documentation/metal/, which lists the selectors declared
// here.
#pragma once

#import <Foundation/Foundation.h>

@protocol MTLBuffer;
@protocol MTLCommandQueue;
@protocol MTLComputePipelineState;
@protocol MTLDevice;
@protocol MTLFunction;
@protocol MTLLibrary;
@protocol MTLResidencySet;

typedef struct {
  NSUInteger width, height, depth;
} MTLSize;
static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
  return {width, height, depth};
}

// mtlresourceoptions
typedef NSUInteger MTLResourceOptions;
static const MTLResourceOptions MTLResourceStorageModeShared = 0;

// mtllanguageversion
typedef NSUInteger MTLLanguageVersion;
static const MTLLanguageVersion MTLLanguageVersion3_1 = (3 << 16) + 1;

// mtlarchitecture; macOS 14
@interface MTLArchitecture : NSObject
@property(readonly) NSString* name;
@end

// mtlmathmode; macOS 15
typedef NSInteger MTLMathMode;
static const MTLMathMode MTLMathModeSafe = 0;

// mtlmathfloatingpointfunctions; macOS 15
typedef NSInteger MTLMathFloatingPointFunctions;
static const MTLMathFloatingPointFunctions MTLMathFloatingPointFunctionsPrecise = 1;

// mtlcompileoptions
@interface MTLCompileOptions : NSObject
@property(nonatomic) MTLLanguageVersion languageVersion;
@property(nonatomic) MTLMathMode mathMode;
@property(nonatomic) MTLMathFloatingPointFunctions mathFloatingPointFunctions;
@end

// mtlallocation; macOS 15
@protocol MTLAllocation <NSObject>
@end

// mtlbuffer
@protocol MTLBuffer <MTLAllocation>
- (void*)contents __attribute__((objc_returns_inner_pointer));
@property(readonly) NSUInteger length;
@end

// mtlfunction
@protocol MTLFunction <NSObject>
@end

// mtllibrary
@protocol MTLLibrary <NSObject>
@property(readonly) id<MTLDevice> device;
- (id<MTLFunction>)newFunctionWithName:(NSString*)name;
@end

// mtlpipelineoption
typedef NSUInteger MTLPipelineOption;
static const MTLPipelineOption MTLPipelineOptionBindingInfo = 1;

// mtlbindingtype
typedef NSInteger MTLBindingType;
static const MTLBindingType MTLBindingTypeBuffer = 0;

// mtlbinding; macOS 13
@protocol MTLBinding <NSObject>
@property(readonly) NSString* name;
@property(readonly) MTLBindingType type;
@property(readonly) NSUInteger index;
@property(readonly, getter=isUsed) BOOL used;
@end

// mtlcomputepipelinereflection; its bindings macOS 13
@interface MTLComputePipelineReflection : NSObject
@property(readonly) NSArray<id<MTLBinding>>* bindings;
@end

// mtlcomputepipelinestate
@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@end

// mtlcommandencoder
@protocol MTLCommandEncoder <NSObject>
- (void)endEncoding;
@end

// mtlcomputecommandencoder
@protocol MTLComputeCommandEncoder <MTLCommandEncoder>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)dispatchThreads:(MTLSize)threads threadsPerThreadgroup:(MTLSize)group;
@end

// mtlcommandbuffer
@protocol MTLCommandBuffer <NSObject>
- (id<MTLComputeCommandEncoder>)computeCommandEncoder;
- (void)commit;
- (void)waitUntilCompleted;
@property(readonly) NSError* error;
@end

// mtlresidencysetdescriptor; macOS 15
@interface MTLResidencySetDescriptor : NSObject
@end

// mtlresidencyset; macOS 15
@protocol MTLResidencySet <NSObject>
- (void)addAllocation:(id<MTLAllocation>)allocation;
- (void)removeAllocation:(id<MTLAllocation>)allocation;
- (void)commit;
- (void)requestResidency;
@end

// mtlcommandqueue
@protocol MTLCommandQueue <NSObject>
- (id<MTLCommandBuffer>)commandBuffer;
- (void)addResidencySet:(id<MTLResidencySet>)set;
@end

// mtldevice
@protocol MTLDevice <NSObject>
@property(readonly) NSString* name;
@property(readonly) MTLArchitecture* architecture;
@property(readonly) NSUInteger maxBufferLength;
- (id<MTLCommandQueue>)newCommandQueue;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (id<MTLBuffer>)newBufferWithBytes:(const void*)bytes
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options;
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)bytes
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void* bytes, NSUInteger length))deallocator;
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError**)error;
- (id<MTLComputePipelineState>)
    newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                options:(MTLPipelineOption)options
                             reflection:(MTLComputePipelineReflection**)reflection
                                  error:(NSError**)error;
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                               error:(NSError**)error;
@end

// mtlcreatesystemdefaultdevice()
extern "C" id<MTLDevice> MTLCreateSystemDefaultDevice(void) __attribute__((ns_returns_retained));

// mtlcopyalldevices()
extern "C" NSArray<id<MTLDevice>>* MTLCopyAllDevices(void) __attribute__((ns_returns_retained));
