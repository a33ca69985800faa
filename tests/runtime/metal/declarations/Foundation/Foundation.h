// The part of Foundation that the Apple device uses, so that Linux can compile it. Every
// declaration is one of developer.apple.com/documentation/foundation, on the page of its class.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define nil nullptr

typedef bool BOOL;
#define YES true
typedef unsigned long NSUInteger;
typedef long NSInteger;

@protocol NSObject
@end
@protocol NSCopying
@end

__attribute__((objc_root_class))
@interface NSObject<NSObject> {
  Class isa;
}
+ (instancetype)alloc;
- (instancetype)init;
@end

@interface NSString : NSObject <NSCopying>
+ (instancetype)stringWithUTF8String:(const char*)text;
@property(readonly) const char* UTF8String;
@end

@interface NSArray<__covariant ObjectType> : NSObject
@property(readonly) ObjectType firstObject;
@property(readonly) NSUInteger count;
- (ObjectType)objectAtIndex:(NSUInteger)index;
@end

@interface NSError : NSObject
@property(readonly, copy) NSString* localizedDescription;
@end

@interface NSException : NSObject
@property(readonly, copy) NSString* reason;
@end
