// Conversion of Objective-C errors to ours.
#pragma once

#import <Foundation/Foundation.h>

#include <string>
#include <string_view>

#include "common/error.h"

// Without ARC, buffers and encoders are freed with the autorelease pool around them.
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

// Run body with an autorelease pool of its own; an Objective-C exception becomes an Error that
// names the action, and C++ exceptions pass through.
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
