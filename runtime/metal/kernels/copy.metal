// Copies between any strides, one thread an element. The loops run from outermost to innermost,
// strides count elements.
#include <metal_stdlib>
using namespace metal;

template <typename T>
void copy_element(device const T* from, device T* to, int count, constant long* size,
                  constant long* from_stride, constant long* to_stride, uint thread_index) {
  long rest = thread_index;
  long from_at = 0;
  long to_at = 0;
  for (int loop = count - 1; loop >= 0; --loop) {
    const long index = rest % size[loop];
    rest /= size[loop];
    from_at += index * from_stride[loop];
    to_at += index * to_stride[loop];
  }
  to[to_at] = from[from_at];
}

kernel void copy_1(device const uchar* from [[buffer(0)]], device uchar* to [[buffer(1)]],
                   constant int& count [[buffer(2)]], constant long* size [[buffer(3)]],
                   constant long* from_stride [[buffer(4)]], constant long* to_stride [[buffer(5)]],
                   uint thread_index [[thread_position_in_grid]]) {
  copy_element(from, to, count, size, from_stride, to_stride, thread_index);
}

kernel void copy_2(device const ushort* from [[buffer(0)]], device ushort* to [[buffer(1)]],
                   constant int& count [[buffer(2)]], constant long* size [[buffer(3)]],
                   constant long* from_stride [[buffer(4)]], constant long* to_stride [[buffer(5)]],
                   uint thread_index [[thread_position_in_grid]]) {
  copy_element(from, to, count, size, from_stride, to_stride, thread_index);
}

kernel void copy_4(device const uint* from [[buffer(0)]], device uint* to [[buffer(1)]],
                   constant int& count [[buffer(2)]], constant long* size [[buffer(3)]],
                   constant long* from_stride [[buffer(4)]], constant long* to_stride [[buffer(5)]],
                   uint thread_index [[thread_position_in_grid]]) {
  copy_element(from, to, count, size, from_stride, to_stride, thread_index);
}

kernel void copy_8(device const long* from [[buffer(0)]], device long* to [[buffer(1)]],
                   constant int& count [[buffer(2)]], constant long* size [[buffer(3)]],
                   constant long* from_stride [[buffer(4)]], constant long* to_stride [[buffer(5)]],
                   uint thread_index [[thread_position_in_grid]]) {
  copy_element(from, to, count, size, from_stride, to_stride, thread_index);
}

// The dtypes' numbers are c10's; 64-bit floats do not exist here.
template <typename T>
void store(device void* to, long at, int dtype, T value) {
  switch (dtype) {
    case 0:
      ((device uchar*)to)[at] = static_cast<uchar>(value);
      break;
    case 1:
      ((device char*)to)[at] = static_cast<char>(value);
      break;
    case 2:
      ((device short*)to)[at] = static_cast<short>(value);
      break;
    case 3:
      ((device int*)to)[at] = static_cast<int>(value);
      break;
    case 4:
      ((device long*)to)[at] = static_cast<long>(value);
      break;
    case 5:
      ((device half*)to)[at] = static_cast<half>(static_cast<float>(value));
      break;
    case 6:
      ((device float*)to)[at] = static_cast<float>(value);
      break;
    case 11:
      ((device bool*)to)[at] = value != static_cast<T>(0);
      break;
    case 15:
      ((device bfloat*)to)[at] = static_cast<bfloat>(static_cast<float>(value));
      break;
  }
}

kernel void convert(device const void* from [[buffer(0)]], device void* to [[buffer(1)]],
                    constant int& count [[buffer(2)]], constant long* size [[buffer(3)]],
                    constant long* from_stride [[buffer(4)]],
                    constant long* to_stride [[buffer(5)]], constant int& from_dtype [[buffer(6)]],
                    constant int& to_dtype [[buffer(7)]],
                    uint thread_index [[thread_position_in_grid]]) {
  long rest = thread_index;
  long from_at = 0;
  long to_at = 0;
  for (int loop = count - 1; loop >= 0; --loop) {
    const long index = rest % size[loop];
    rest /= size[loop];
    from_at += index * from_stride[loop];
    to_at += index * to_stride[loop];
  }
  // Whole numbers pass as such: a float would round the large ones.
  switch (from_dtype) {
    case 0:
      return store(to, to_at, to_dtype, static_cast<long>(((device const uchar*)from)[from_at]));
    case 1:
      return store(to, to_at, to_dtype, static_cast<long>(((device const char*)from)[from_at]));
    case 2:
      return store(to, to_at, to_dtype, static_cast<long>(((device const short*)from)[from_at]));
    case 3:
      return store(to, to_at, to_dtype, static_cast<long>(((device const int*)from)[from_at]));
    case 4:
      return store(to, to_at, to_dtype, ((device const long*)from)[from_at]);
    case 5:
      return store(to, to_at, to_dtype, static_cast<float>(((device const half*)from)[from_at]));
    case 6:
      return store(to, to_at, to_dtype, ((device const float*)from)[from_at]);
    case 11:
      return store(to, to_at, to_dtype, static_cast<long>(((device const bool*)from)[from_at]));
    case 15:
      return store(to, to_at, to_dtype, static_cast<float>(((device const bfloat*)from)[from_at]));
  }
}
