// The steps that follow a product, for kernels and, as C++, for metal/epilogue.h. Lowering numbers
// them in transforms/passes/metal/fuse_epilogues.py, as a test compares.
#pragma once

enum Step : int {
  kRelu,
  kLeakyRelu,  // low: the slope below zero
  kClamp,      // from low to high
  kGelu,
  kGeluTanh,
  kSilu,
  kSigmoid,
  kTanh,
  kHardSwish,
  kHardSigmoid,
  kAffine,    // times low, plus high
  kAdd,       // low times the other operand
  kMultiply,  // by the other operand
};

enum { kMostSteps = 4 };

struct Finish {
  int count;
  int steps[kMostSteps];
  float low[kMostSteps];
  float high[kMostSteps];
};

// Where the other operand has the element of a row and a column, in elements; a row of an image is
// a channel, and a column one of its places, of which `width` lie across: one,
// and each `down` from the one before, where an image lies in one piece.
struct Beside {
  uint32_t batch;
  uint32_t row;
  uint32_t down;
  uint32_t across;
  uint32_t width;
};
