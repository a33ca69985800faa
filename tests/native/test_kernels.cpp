// The portable kernels against the sums that define a product and a convolution, in double.
#include <array>
#include <cmath>
#include <random>

#include "check.h"
#include "common/context.h"
#include "common/dtype.h"
#include "kernels/kernels.h"

using namespace menagerie;

namespace {

using Numbers = std::vector<int64_t>;

std::mt19937& random() {
  static std::mt19937 generator(7);
  return generator;
}

// Values in [-1, 1], the axes laid out in this order, outermost first, every other element unused.
Tensor scattered(const Numbers& sizes, const std::vector<size_t>& order) {
  Numbers strides(sizes.size());
  int64_t step = 2;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= sizes[order[i]];
  }
  Tensor tensor = empty_strided(Dtype::kFloat32, sizes, strides);
  std::uniform_real_distribution<float> values(-1, 1);
  for_each_index(sizes, [&](std::span<const int64_t> index) {
    int64_t at = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * strides[axis];
    tensor.data<float>()[at] = values(random());
  });
  return tensor;
}

std::vector<size_t> in_order(size_t axes) {
  std::vector<size_t> order(axes);
  for (size_t i = 0; i < axes; ++i) order[i] = i;
  return order;
}

std::vector<size_t> channels_innermost(size_t axes) {
  std::vector<size_t> order = in_order(axes);
  std::erase(order, size_t{1});
  order.push_back(1);
  return order;
}

double element(const Tensor& tensor, std::span<const int64_t> index) {
  int64_t at = 0;
  for (size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * tensor.stride[axis];
  return tensor.data<float>()[at];
}

// As the definitions of torch.nn.functional have them.
double activated(const kernels::Epilogue& epilogue, double x) {
  using kernels::Activation;
  const auto hard = [](double y) { return std::clamp(y / 6 + 0.5, 0.0, 1.0); };
  switch (epilogue.activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kClamp:
      return std::clamp(x, double{epilogue.alpha}, double{epilogue.beta});
    case Activation::kGeluErf:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kSwish:
      return x / (1 + std::exp(-x));
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kHardSwish:
      return x * hard(x);
    case Activation::kHardSigmoid:
      return hard(x);
  }
  return NAN;
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-5 * (1 + std::abs(b)); }

struct Shapes {
  int64_t m, n, k, batches;
};

void check_product(const Shapes& s, const std::vector<size_t>& order,
                   const kernels::Epilogue& epilogue, float alpha, float beta) {
  const bool batched = s.batches > 0;
  const auto sizes = [&](int64_t rows, int64_t columns) {
    return batched ? Numbers{s.batches, rows, columns} : Numbers{rows, columns};
  };
  const std::vector<size_t> axes = batched ? order : in_order(2);
  const Tensor a = scattered(sizes(s.m, s.k), axes);
  const Tensor b = scattered(sizes(s.k, s.n), axes);
  const Tensor out = scattered(sizes(s.m, s.n), in_order(axes.size()));
  const Tensor bias = scattered({s.n}, {0});
  Tensor before = empty_strided(Dtype::kFloat32, out.sizes(), out.strides());
  std::copy(out.data<float>(), out.data<float>() + out.elements() * 2 - 1, before.data<float>());
  kernels::matrix_product({a, b, &bias, alpha, beta, epilogue}, out);
  bool equal = true;
  for_each_index(out.sizes(), [&](std::span<const int64_t> index) {
    Numbers left(index.begin(), index.end()), right = left;
    double sum = 0;
    for (int64_t k = 0; k < s.k; ++k) {
      left.back() = k;
      right[right.size() - 2] = k;
      sum += element(a, left) * element(b, right);
    }
    const Numbers column{index.back()};
    const double wanted = activated(epilogue, double{alpha} * sum + element(bias, column) +
                                                  double{beta} * element(before, index));
    equal = equal && near(element(out, index), wanted);
  });
  CHECK(equal);
}

ConvolutionParameters parameters(size_t spatial, int64_t stride, int64_t padding, int64_t dilation,
                                 bool transposed, int64_t groups) {
  ConvolutionParameters p;
  p.spatial = spatial;
  p.transposed = transposed;
  p.groups = groups;
  for (size_t i = 0; i < spatial; ++i) {
    p.stride[i] = stride;
    p.padding[i] = padding;
    p.dilation[i] = dilation;
    p.output_padding[i] = transposed && stride > 1 ? 1 : 0;
  }
  return p;
}

// By scattering every product to where it belongs, the way a transposed convolution is defined.
std::vector<double> convolved(const Tensor& input, const Tensor& weight, const Tensor& output,
                              const ConvolutionParameters& p) {
  const Extents dense = contiguous_strides(output.sizes());
  std::vector<double> sums(static_cast<size_t>(output.elements()));
  const int64_t in = input.size[1] / p.groups;
  const int64_t out = output.size[1] / p.groups;
  const Tensor& many = p.transposed ? input : output;  // its positions are walked
  const Tensor& few = p.transposed ? output : input;
  for_each_index(many.sizes(), [&](std::span<const int64_t> index) {
    const int64_t group = index[1] / (p.transposed ? in : out);
    for_each_index(weight.sizes().subspan(1), [&](std::span<const int64_t> rest) {
      Numbers w{index[1]};
      w.insert(w.end(), rest.begin(), rest.end());
      Numbers other(index.begin(), index.end());
      other[1] = group * (p.transposed ? out : in) + w[1];
      for (size_t axis = 0; axis < p.spatial; ++axis) {
        const int64_t at =
            index[axis + 2] * p.stride[axis] - p.padding[axis] + w[axis + 2] * p.dilation[axis];
        if (at < 0 || at >= few.size[axis + 2]) return;
        other[axis + 2] = at;
      }
      const Numbers own(index.begin(), index.end());
      const Numbers& to = p.transposed ? other : own;
      int64_t place = 0;
      for (size_t axis = 0; axis < to.size(); ++axis) place += to[axis] * dense[axis];
      sums[place] += element(input, p.transposed ? own : other) * element(weight, w);
    });
  });
  return sums;
}

void check_convolution(const Numbers& input_sizes, int64_t outputs, int64_t window,
                       const ConvolutionParameters& p, const kernels::Epilogue& epilogue,
                       const std::vector<size_t>& order) {
  Numbers weight_sizes{p.transposed ? input_sizes[1] : outputs,
                       (p.transposed ? outputs : input_sizes[1]) / p.groups};
  Numbers sizes{input_sizes[0], outputs};
  for (size_t axis = 0; axis < p.spatial; ++axis) {
    weight_sizes.push_back(window);
    const int64_t reach = p.dilation[axis] * (window - 1) + 1;
    const int64_t from = input_sizes[axis + 2];
    sizes.push_back(p.transposed ? (from - 1) * p.stride[axis] - 2 * p.padding[axis] + reach +
                                       p.output_padding[axis]
                                 : (from + 2 * p.padding[axis] - reach) / p.stride[axis] + 1);
  }
  const Tensor input = scattered(input_sizes, order);
  const Tensor weight = scattered(weight_sizes, order);
  const Tensor bias = scattered({outputs}, {0});
  const Tensor output = scattered(sizes, order);
  kernels::convolution(input, weight, &bias, p, epilogue, output);
  const std::vector<double> sums = convolved(input, weight, output, p);
  size_t place = 0;
  bool equal = true;
  for_each_index(output.sizes(), [&](std::span<const int64_t> index) {
    const double sum = sums[place++] + element(bias, Numbers{index[1]});
    equal = equal && near(element(output, index), activated(epilogue, sum));
  });
  CHECK(equal);
}

constexpr std::array kActivations = {
    kernels::Activation::kNone,      kernels::Activation::kRelu,
    kernels::Activation::kClamp,     kernels::Activation::kGeluErf,
    kernels::Activation::kGeluTanh,  kernels::Activation::kSwish,
    kernels::Activation::kSigmoid,   kernels::Activation::kTanh,
    kernels::Activation::kHardSwish, kernels::Activation::kHardSigmoid,
};

}  // namespace

TEST("portable products of every size about a tile's, a block's and a panel's edges") {
  for (const int32_t threads : {1, 3}) {
    Context context(threads);
    const Context::Loan loan(context);
    for (const int64_t m : {1, 6, 97}) {
      for (const int64_t n : {1, 16, 17, 257}) {
        for (const int64_t k : {1, 257}) {
          check_product({m, n, k, 0}, {}, {}, 1, 0);
        }
      }
    }
    check_product({200, 300, 70, 0}, {}, {}, 0.5, 2);
    for (const auto& order : {std::vector<size_t>{0, 1, 2}, {2, 1, 0}, {1, 0, 2}}) {
      check_product({7, 18, 20, 5}, order, {}, 1, 0);
    }
  }
}

TEST("portable products end with each activation") {
  for (const kernels::Activation activation : kActivations) {
    check_product({9, 35, 12, 0}, {}, {.activation = activation, .alpha = 0.1F, .beta = 0.7F}, 1,
                  0);
  }
}

TEST("portable convolutions over one, two and three axes, strided, dilated, grouped, transposed") {
  for (const size_t spatial : {1, 2, 3}) {
    Numbers sizes{2, 4};
    for (size_t axis = 0; axis < spatial; ++axis) sizes.push_back(4 + static_cast<int64_t>(axis));
    for (const auto& order : {in_order(spatial + 2), channels_innermost(spatial + 2)}) {
      for (const int64_t window : {1, 3}) {
        for (const int64_t stride : {1, 2}) {
          for (const int64_t dilation : {1, 2}) {
            for (const bool transposed : {false, true}) {
              for (const int64_t groups : {1, 2, 4}) {
                const auto p =
                    parameters(spatial, stride, window / 2, dilation, transposed, groups);
                check_convolution(sizes, 4, window, p, {}, order);
              }
            }
          }
        }
      }
    }
  }
}

TEST("portable convolutions over many channels, and with operations behind them") {
  const std::vector<size_t> order = channels_innermost(4);
  for (const int64_t groups : {1, 2}) {
    check_convolution({1, 130, 7, 9}, 20, 3, parameters(2, 1, 1, 1, false, groups), {}, order);
  }
  const kernels::Epilogue relu{.activation = kernels::Activation::kRelu};
  check_convolution({1, 6, 7, 9}, 6, 3, parameters(2, 1, 1, 1, false, 6), relu, order);
  check_convolution({1, 6, 7, 9}, 4, 3, parameters(2, 2, 1, 1, false, 2), relu, order);
}

// Values of normal distribution in dense rows.
Tensor dense(const Numbers& sizes) {
  const Tensor from = scattered(sizes, {0, 1});
  Tensor made = empty_contiguous(Dtype::kFloat32, from.sizes());
  int64_t place = 0;
  for_each_index(from.sizes(), [&](std::span<const int64_t> index) {
    made.data<float>()[place++] = static_cast<float>(element(from, index));
  });
  return made;
}

// Whether out is left [m, k] times right, [k, n] or, transposed, [n, k].
bool is_product(const Tensor& out, const Tensor& left, const Tensor& right, bool transposed) {
  bool equal = true;
  for_each_index(out.sizes(), [&](std::span<const int64_t> index) {
    double sum = 0;
    for (int64_t k = 0; k < left.size[1]; ++k) {
      sum += element(left, Numbers{index[0], k}) *
             element(right, transposed ? Numbers{index[1], k} : Numbers{k, index[1]});
    }
    equal = equal && near(element(out, index), sum);
  });
  return equal;
}

TEST("a small product takes its right operand as it is stored or transposed") {
  for (const bool transposed : {false, true}) {
    const Tensor left = dense({13, 9}), out = dense({13, 21});
    const Tensor right = transposed ? dense({21, 9}) : dense({9, 21});
    kernels::small_product({13, 21, 9, left.data<float>(), 9, right.data<float>(),
                            transposed ? 9 : 21, transposed, out.data<float>(), 21});
    CHECK(is_product(out, left, right, transposed));
  }
}

TEST("a packed operand serves products of any number of rows") {
  for (const bool transposed : {false, true}) {
    for (const int64_t columns : {1, 16, 37}) {
      const Tensor right = transposed ? dense({columns, 9}) : dense({9, columns});
      const kernels::PackedRight layout(9, columns);
      std::vector<float> packed(static_cast<size_t>(layout.size()));
      layout.pack(right.data<float>(), transposed ? 1 : columns, transposed ? 9 : 1, packed.data());
      for (const int64_t rows : {1, 6, 14}) {
        const Tensor left = dense({rows, 9}), out = dense({rows, columns});
        layout.multiply(left.data<float>(), 9, rows, packed.data(), out.data<float>(), columns);
        CHECK(is_product(out, left, right, transposed));
      }
    }
  }
}

TEST("a row's exponentials are of its distance from the highest, and zero far below it") {
  for (const int64_t n : {1, 8, 13, 48, 77, 93}) {
    std::vector<float> row;
    for (int64_t i = 0; i < n; ++i) row.push_back(1.5F - static_cast<float>(i * i % 97));
    const std::vector<float> given = row;
    const float highest = kernels::maximum(row.data(), n);
    CHECK(highest == 1.5F);
    double sum = 0;
    const float total = kernels::exponentials(row.data(), n, highest);
    for (size_t i = 0; i < row.size(); ++i) {
      const double exact = std::exp(double{given[i]} - double{highest});
      CHECK(near(row[i], given[i] - highest < -87 ? 0 : exact));
      sum += row[i];
    }
    CHECK(near(total, sum));
  }
}
