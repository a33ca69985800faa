#include "kernels/finish.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/error.h"
#include "common/vector_math.h"

namespace menagerie::portable {
namespace {

template <class Function>
void each(float* values, int64_t count, Function function) {
  for (int64_t i = 0; i < count; ++i) values[i] = function(values[i]);
}

float hard_sigmoid(float x) { return std::clamp(x / 6 + 0.5F, 0.0F, 1.0F); }

// Apply a function to eight values at a time, the last ones padded with zeros.
template <class Function>
void each_eight(float* values, int64_t count, Function function) {
  for (int64_t i = 0; i < count; i += 8) {
    const size_t bytes = static_cast<size_t>(std::min<int64_t>(8, count - i)) * sizeof(float);
    Float8 eight{};
    std::memcpy(&eight, values + i, bytes);
    eight = function(eight);
    std::memcpy(values + i, &eight, bytes);
  }
}

}  // namespace

std::array<int64_t, ResultRows::kAxes> ResultRows::index(int64_t row) const {
  std::array<int64_t, kAxes> index{};
  for (size_t axis = kAxes; axis-- > 0;) {
    index[axis] = row % size[axis];
    row /= size[axis];
  }
  return index;
}

int64_t ResultRows::offset(int64_t row) const {
  int64_t offset = 0;
  for (size_t axis = kAxes; axis-- > 0;) {
    offset += row % size[axis] * stride[axis];
    row /= size[axis];
  }
  return offset;
}

void require_floats(const Tensor& tensor) {
  require(tensor.dtype == Dtype::kFloat32, "the portable kernels compute with float32, not with ",
          tensor);
}

std::vector<float> floats_of(const Tensor* list) {
  std::vector<float> floats;
  if (list == nullptr) return floats;
  for (int64_t i = 0; i < list->size[0]; ++i) {
    floats.push_back(list->data<float>()[i * list->stride[0]]);
  }
  return floats;
}

void activate(const kernels::Epilogue& epilogue, float* values, int64_t count) {
  using kernels::Activation;
  const float alpha = epilogue.alpha;
  const float beta = epilogue.beta;
  switch (epilogue.activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:  // written so that a NaN stays one
      return each(values, count, [](float x) { return x < 0 ? 0 : x; });
    case Activation::kClamp:
      return each(values, count, [alpha, beta](float x) {
        return x < alpha ? alpha : x > beta ? beta : x;
      });
    case Activation::kGeluErf:
      return each(values, count,
                  [](float x) { return 0.5F * x * (1 + std::erf(x * 0.70710678F)); });
    case Activation::kGeluTanh:
      return each(values, count, [](float x) {
        constexpr float kRootOfTwoOverPi = 0.79788456F;
        return 0.5F * x * (1 + std::tanh(kRootOfTwoOverPi * (x + 0.044715F * x * x * x)));
      });
    case Activation::kSwish:
      return each_eight(values, count, [](Float8 x) { return x * sigmoid8(x); });
    case Activation::kSigmoid:
      return each_eight(values, count, sigmoid8);
    case Activation::kTanh:
      return each(values, count, [](float x) { return std::tanh(x); });
    case Activation::kHardSwish:
      return each(values, count, [](float x) { return x * hard_sigmoid(x); });
    case Activation::kHardSigmoid:
      return each(values, count, hard_sigmoid);
  }
}

Finish Finish::of_columns(int64_t first, int64_t columns) const {
  Finish part = *this;
  part.result = result.from(first);
  if (!bias.empty()) part.bias = {bias.begin() + first, bias.begin() + first + columns};
  return part;
}

void Finish::store(int64_t row, int64_t first, int64_t columns, float* sums) const {
  float* to = result.at(row, first);
  const int64_t step = result.column;
  if (alpha != 1) {
    for (int64_t j = 0; j < columns; ++j) sums[j] *= alpha;
  }
  if (!bias.empty()) {
    for (int64_t j = 0; j < columns; ++j) sums[j] += bias[first + j];
  }
  if (beta != 0) {
    for (int64_t j = 0; j < columns; ++j) sums[j] += beta * to[j * step];
  }
  activate(epilogue, sums, columns);
  if (step == 1) {
    std::copy(sums, sums + columns, to);
  } else {
    for (int64_t j = 0; j < columns; ++j) to[j * step] = sums[j];
  }
}

}  // namespace menagerie::portable
