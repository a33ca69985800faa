// From Objective-C's ways of failing to ours.
#pragma once

#import <Foundation/Foundation.h>

#include <string>
#include <string_view>

#include "common/error.h"

// Without reference counting by the compiler, buffers and encoders die with the pool around them.
#if !__has_feature(objc_arc)
#error "the Apple device is built with -fobjc-arc: metal/apple/sources.cmake"
#endif

namespace menagerie::metal {

inline std::string text_of(NSString* text) {
  return text != nil ? text.UTF8String : "no reason given";
}

inline std::string text_of(NSError* error) {
  return error != nil ? text_of(error.localizedDescription) : "no reason given";
}

// Runs body with an autorelease pool of its own; an Objective-C exception becomes an Error that
// names the action, C++ exceptions pass.
template <class Body>
void in_pool(std::string_view action, Body&& body) {
  std::string fact;
  @autoreleasepool {
    @try {
      body();
      return;
    } @catch (NSException* exception) {
      fact = text_of(exception.reason);
    }
  }
  fail(action, " failed: ", fact);
}

}  // namespace menagerie::metal
