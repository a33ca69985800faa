// The part of Metal Performance Shaders Graph that the Apple device uses, so that Linux can compile
// it. Each type is followed by its page below
// developer.apple.com/documentation/metalperformanceshadersgraph/, with the system that brought it.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

// mpsgraphtensornameddatalayout
typedef NSUInteger MPSGraphTensorNamedDataLayout;
static const MPSGraphTensorNamedDataLayout MPSGraphTensorNamedDataLayoutNCHW = 0;
static const MPSGraphTensorNamedDataLayout MPSGraphTensorNamedDataLayoutNHWC = 1;
static const MPSGraphTensorNamedDataLayout MPSGraphTensorNamedDataLayoutOIHW = 2;

// mpsgraphpaddingstyle
typedef NSUInteger MPSGraphPaddingStyle;
static const MPSGraphPaddingStyle MPSGraphPaddingStyleExplicit = 0;

@class MPSGraphOperation;

// mpsgraphoptimization
typedef uint64_t MPSGraphOptimization;
static const MPSGraphOptimization MPSGraphOptimizationLevel0 = 0;

// mpsgraphcompilationdescriptor; macOS 12
@interface MPSGraphCompilationDescriptor : NSObject
@property(nonatomic) MPSGraphOptimization optimizationLevel;
@end

// mpsgraphexecutiondescriptor; macOS 11, its compilationDescriptor since macOS 12.3
@interface MPSGraphExecutionDescriptor : NSObject
@property(copy) MPSGraphCompilationDescriptor* compilationDescriptor;
@end

// mpsgraphtensor; macOS 11
@interface MPSGraphTensor : NSObject <NSCopying>
@end

// mpsgraphtensordata; macOS 11
@interface MPSGraphTensorData : NSObject
- (instancetype)initWithMPSNDArray:(MPSNDArray*)array;
@end

// mpsgraphconvolution2dopdescriptor; macOS 11
@interface MPSGraphConvolution2DOpDescriptor : NSObject
+ (instancetype)descriptorWithStrideInX:(NSUInteger)stride_x
                              strideInY:(NSUInteger)stride_y
                        dilationRateInX:(NSUInteger)dilation_x
                        dilationRateInY:(NSUInteger)dilation_y
                                 groups:(NSUInteger)groups
                            paddingLeft:(NSUInteger)left
                           paddingRight:(NSUInteger)right
                             paddingTop:(NSUInteger)top
                          paddingBottom:(NSUInteger)bottom
                           paddingStyle:(MPSGraphPaddingStyle)style
                             dataLayout:(MPSGraphTensorNamedDataLayout)data_layout
                          weightsLayout:(MPSGraphTensorNamedDataLayout)weights_layout;
@end

// mpsgraph; macOS 11, transposeTensor:permutation:name: since macOS 13
@interface MPSGraph : NSObject
- (MPSGraphTensor*)placeholderWithShape:(NSArray<NSNumber*>*)shape
                               dataType:(MPSDataType)type
                                   name:(NSString*)name;
- (MPSGraphTensor*)constantWithScalar:(double)scalar dataType:(MPSDataType)type;
- (MPSGraphTensor*)additionWithPrimaryTensor:(MPSGraphTensor*)primary
                             secondaryTensor:(MPSGraphTensor*)secondary
                                        name:(NSString*)name;
- (MPSGraphTensor*)multiplicationWithPrimaryTensor:(MPSGraphTensor*)primary
                                   secondaryTensor:(MPSGraphTensor*)secondary
                                              name:(NSString*)name;
- (MPSGraphTensor*)matrixMultiplicationWithPrimaryTensor:(MPSGraphTensor*)primary
                                         secondaryTensor:(MPSGraphTensor*)secondary
                                                    name:(NSString*)name;
- (MPSGraphTensor*)transposeTensor:(MPSGraphTensor*)tensor
                       permutation:(NSArray<NSNumber*>*)permutation
                              name:(NSString*)name;
- (MPSGraphTensor*)convolution2DWithSourceTensor:(MPSGraphTensor*)source
                                   weightsTensor:(MPSGraphTensor*)weights
                                      descriptor:(MPSGraphConvolution2DOpDescriptor*)descriptor
                                            name:(NSString*)name;
- (MPSGraphTensor*)convolution2DDataGradientWithIncomingGradientTensor:(MPSGraphTensor*)gradient
                                                         weightsTensor:(MPSGraphTensor*)weights
                                                           outputShape:(NSArray<NSNumber*>*)shape
                                          forwardConvolutionDescriptor:
                                              (MPSGraphConvolution2DOpDescriptor*)descriptor
                                                                  name:(NSString*)name;
- (void)encodeToCommandBuffer:(MPSCommandBuffer*)buffer
                        feeds:(NSDictionary<MPSGraphTensor*, MPSGraphTensorData*>*)feeds
             targetOperations:(NSArray<MPSGraphOperation*>*)operations
            resultsDictionary:(NSDictionary<MPSGraphTensor*, MPSGraphTensorData*>*)results
          executionDescriptor:(MPSGraphExecutionDescriptor*)descriptor;
@end
