// Copies between any strides, one thread an element. The loops run from outermost to innermost,
// strides count elements.
#include <metal_stdlib>
using namespace metal;

#define OPERANDS(From, To)                                                                \
  device const From *from [[buffer(0)]], device To *to [[buffer(1)]],                    \
      constant int &count [[buffer(2)]], constant long *size [[buffer(3)]],              \
      constant long *from_stride [[buffer(4)]], constant long *to_stride [[buffer(5)]], \
      uint thread_index [[thread_position_in_grid]]

struct Places {
  long from;
  long to;
};

Places places_of(int count, constant long* size, constant long* from_stride,
                 constant long* to_stride, uint thread_index) {
  long rest = thread_index;
  Places at{0, 0};
  for (int loop = count - 1; loop >= 0; --loop) {
    const long index = rest % size[loop];
    rest /= size[loop];
    at.from += index * from_stride[loop];
    at.to += index * to_stride[loop];
  }
  return at;
}

template <typename T>
kernel void copy(OPERANDS(T, T)) {
  const Places at = places_of(count, size, from_stride, to_stride, thread_index);
  to[at.to] = from[at.from];
}

#define COPY(T, Width) template [[host_name("copy_" #Width)]] [[kernel]] decltype(copy<T>) copy<T>;

COPY(uchar, 1)
COPY(ushort, 2)
COPY(uint, 4)
COPY(long, 8)

// Each dtype's number, which is c10's, its type, and one on the way to it or from it: a float would
// round large whole numbers. 64-bit floats do not exist here.
#define WHOLE(CASE, Wide) \
  CASE(0, uchar, Wide)    \
  CASE(1, char, Wide)     \
  CASE(2, short, Wide)    \
  CASE(3, int, Wide)      \
  CASE(4, long, Wide)
#define REAL(CASE)      \
  CASE(5, half, float)  \
  CASE(6, float, float) \
  CASE(15, bfloat, float)

template <typename T>
void store(device void* to, long at, int dtype, T value) {
#define STORE(Number, Type, Wide)                                          \
  case Number:                                                             \
    ((device Type*)to)[at] = static_cast<Type>(static_cast<Wide>(value)); \
    break;
  switch (dtype) {
    WHOLE(STORE, T)
    REAL(STORE)
    case 11:
      ((device bool*)to)[at] = value != static_cast<T>(0);
  }
}

kernel void convert(OPERANDS(void, void), constant int& from_dtype [[buffer(6)]],
                    constant int& to_dtype [[buffer(7)]]) {
  const Places at = places_of(count, size, from_stride, to_stride, thread_index);
#define LOAD(Number, Type, Wide) \
  case Number:                   \
    return store(to, at.to, to_dtype, static_cast<Wide>(((device const Type*)from)[at.from]));
  switch (from_dtype) {
    WHOLE(LOAD, long)
    REAL(LOAD)
    LOAD(11, bool, long)
  }
}
