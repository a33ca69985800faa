// How what is scattered is combined with what is in its place.

// As Reduction of common/indices.h numbers them.
enum Reduction { kStore = 0, kAdd = 1, kMultiply = 2, kLargest = 3, kSmallest = 4, kCount = 5 };

template <typename T>
T combined(T old, T value, int reduction) {
  switch (reduction) {
    case kAdd:
      return old + value;
    case kMultiply:
      return old * value;
    case kLargest:
      return old != old || (value == value && old > value) ? old : value;
    case kSmallest:
      return old != old || (value == value && old < value) ? old : value;
    case kCount:
      return old + 1;
    default:
      return value;
  }
}
