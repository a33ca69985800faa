#import "double.h"

extern "C" {
NSObject* double_new(Class type) __attribute__((ns_returns_retained));
void double_delete(void* object);
void objc_exception_throw(id object) __attribute__((noreturn));
}

#pragma clang diagnostic ignored "-Wobjc-missing-super-calls"

@implementation NSObject
+ (instancetype)alloc {
  return double_new(self);
}
- (instancetype)init {
  return self;
}
- (void)dealloc {
  double_delete((__bridge void*)self);
}
@end

@implementation NSString {
  std::string _text;
}
+ (instancetype)stringWithUTF8String:(const char*)text {
  if (text == nullptr) fault("a string is made of no text");
  NSString* made = [[self alloc] init];
  made->_text = text;
  return made;
}
- (const char*)UTF8String {
  return _text.c_str();
}
@end

@implementation NSArray {
 @protected
  std::vector<id> _objects;
}
- (id)firstObject {
  return _objects.empty() ? nil : _objects.front();
}
- (NSUInteger)count {
  return _objects.size();
}
- (id)objectAtIndex:(NSUInteger)index {
  // nsarray/object(at:): raises NSRangeException
  if (index >= _objects.size())
    objc_exception_throw([NSException exceptionWithReason:"an index beyond an array's end"]);
  return _objects[index];
}
@end

@implementation NSMutableArray
+ (instancetype)arrayWithCapacity:(NSUInteger)capacity {
  NSMutableArray* made = [[self alloc] init];
  made->_objects.reserve(capacity);
  return made;
}
- (void)addObject:(id)object {
  // nsmutablearray/addobject(_:): raises NSInvalidArgumentException if the object is nil
  if (object == nil)
    objc_exception_throw([NSException exceptionWithReason:"an array takes no nil"]);
  _objects.push_back(object);
}
@end

@implementation NSError {
  NSString* _text;
}
+ (NSError*)errorWithText:(const std::string&)text {
  NSError* made = [[self alloc] init];
  made->_text = [NSString stringWithUTF8String:text.c_str()];
  return made;
}
- (NSString*)localizedDescription {
  return _text;
}
@end

@implementation NSException {
  NSString* _text;
}
+ (NSException*)exceptionWithReason:(const char*)text {
  NSException* made = [[self alloc] init];
  made->_text = [NSString stringWithUTF8String:text];
  return made;
}
- (NSString*)reason {
  return _text;
}
@end
