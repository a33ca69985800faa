// Matrix products: which kernel computes one, in tiles of which size, and how each operand is
// stored.
#include "metal/products.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>

#include "common/copy.h"
#include "common/dtype.h"
#include "common/error.h"
#include "common/operators.h"
#include "metal/operands.h"

namespace menagerie::metal {
namespace {

// For a GPU to be busy: two groups for each of the eight cores of an M1.
constexpr int64_t kEnoughGroups = 16;
constexpr uint64_t kThreads = 128;  // of a group
// A large tile reads its operands less often, a small one leaves less of itself empty.
constexpr int64_t kLarge = 64, kSmall = 32;
const std::string kByUnits = "multiply_by_units";
constexpr int64_t kBlock = 512;  // as tiles.h has it: parts end where its sums do

// As the kernels have it.
struct Parts {
  uint32_t count, length;
};

// Tiles of which side a product is cut in, and its terms in how many parts: on a GPU of many cores
// few groups would leave most of it idle.
struct Cut {
  int64_t tile;
  Parts parts;

  int64_t groups(const ProductExtents& p, int64_t batch) const {
    return static_cast<int64_t>(quotient(p.m, tile) * quotient(p.n, tile)) * batch * parts.count;
  }
  // In quarters of a multiplication: a small tile multiplies four fifths of the time that a large
  // one does, a part's sum is written and read, and it takes a while until a kernel has begun.
  int64_t cost(const ProductExtents& p, int64_t batch) const {
    constexpr int64_t kSum = 512, kKernel = 1 << 23;
    const int64_t area = tile * tile * (tile == kLarge ? 4 : 5);
    const int64_t sums = batch * p.m * p.n * parts.count;
    return std::max(groups(p, batch), kEnoughGroups) * area * parts.length +
           (parts.count > 1 ? sums * kSum + kKernel : 0);
  }
};

// The cheapest one.
Cut cut_of(const ProductExtents& p, int64_t batch, bool in_parts) {
  Cut best{kSmall, {1, p.k}};
  for (const int64_t tile : {kLarge, kSmall}) {
    if (tile == kLarge && std::min(p.m, p.n) <= kSmall) continue;
    const Cut whole{tile, {1, p.k}};
    const uint64_t wanted = quotient(kEnoughGroups, whole.groups(p, batch));
    const uint64_t most = in_parts ? std::max<uint64_t>(quotient(p.k, kBlock), 1) : 1;
    const auto length =
        quotient(quotient(p.k, kBlock), static_cast<int64_t>(std::min(wanted, most)));
    const auto terms = static_cast<uint32_t>(length * kBlock);
    const Cut parts{tile, {static_cast<uint32_t>(quotient(p.k, terms)), std::min(terms, p.k)}};
    for (const Cut& cut : {whole, parts}) {
      if (cut.cost(p, batch) < best.cost(p, batch)) best = cut;
    }
  }
  return best;
}

void dispatch_cut(const std::string& file, const std::string& function, const Arguments& arguments,
                  const ProductExtents& p, int64_t batch, const Cut& cut, Dtype dtype) {
  dispatch(file, function + "_" + metal_name(dtype) + "_" + std::to_string(cut.tile), arguments,
           Grid{{quotient(p.n, cut.tile) * kThreads, quotient(p.m, cut.tile),
                 static_cast<uint64_t>(batch) * cut.parts.count},
                {kThreads, 1, 1}});
}

// Whether the device's matrix units give sums of products of whole numbers, which are exact, with
// operands in rows or columns: so faults of compilers and drivers cannot reach a result.
bool units_are_right(Dtype dtype, bool left_in_columns, bool right_in_columns) {
  constexpr uint32_t m = 70, n = 67, k = 40, terms = 20;  // two parts of ragged tiles, odd rows
  const auto number = [](uint32_t i, uint32_t by) { return static_cast<int>(i * by % 5) - 2; };
  constexpr std::array<uint16_t, 5> half{0xC000, 0xBC00, 0, 0x3C00, 0x4000};  // -2 to 2
  constexpr std::array<uint16_t, 5> bfloat{0xC000, 0xBF80, 0, 0x3F80, 0x4000};
  MetalDevice& device = MetalDevice::instance();
  const auto operand = [&](uint32_t rows, uint32_t columns, uint32_t by, bool in_columns) {
    const auto buffer = device.allocate(rows * columns * sizeof(uint16_t));
    auto* bits = static_cast<uint16_t*>(buffer->contents());
    for (uint32_t i = 0; i < rows * columns; ++i) {
      const uint32_t place = in_columns ? i % columns * rows + i / columns : i;
      bits[place] = (dtype == Dtype::kFloat16 ? half : bfloat)[number(i, by) + 2];
    }
    return Region{buffer, 0, buffer->bytes()};
  };
  const auto strides = [](uint32_t rows, uint32_t columns, bool in_columns) {
    return in_columns ? MatrixStrides{0, 1, rows} : MatrixStrides{0, columns, 1};
  };
  const Region a = operand(m, k, 3, left_in_columns), b = operand(k, n, 7, right_in_columns);
  const auto sums = device.allocate(2 * m * n * sizeof(float));
  Arguments arguments(a, a, b, a, ProductExtents{m, n, k, 1, 0}, strides(m, k, left_in_columns),
                      strides(k, n, right_in_columns), a, MatrixStrides{}, MatrixStrides{});
  add_finish(arguments, {}, a);
  arguments.add(Region{sums, 0, sums->bytes()}).add(Parts{2, terms});
  try {
    const auto stream = device.make_stream();  // whatever the context's own one is in the midst of
    stream->dispatch(
        own_kernel("tensor_product", kByUnits + "_" + metal_name(dtype) + "_64"), arguments.all(),
        Grid{{quotient(n, kLarge) * kThreads, quotient(m, kLarge), 2}, {kThreads, 1, 1}});
    stream->synchronize();
  } catch (const Error&) {  // the kernel does not compile here
    return false;
  }
  const auto* found = static_cast<const float*>(sums->contents());
  for (uint32_t i = 0; i < 2 * m * n; ++i) {
    const uint32_t part = i / (m * n), row = i / n % m, column = i % n;
    int sum = 0;
    for (uint32_t term = part * terms; term < (part + 1) * terms; ++term) {
      sum += number(row * k + term, 3) * number(term * n + column, 7);
    }
    if (found[i] != static_cast<float>(sum)) return false;
  }
  return true;
}

// Units compute float32 with fewer digits than it has.
bool takes_units(int64_t tile, Dtype dtype) {
  if (tile != kLarge || dtype == Dtype::kFloat32) return false;
  if (!MetalDevice::instance().has_matrix_units()) return false;
  const auto right = [](Dtype of) {
    return units_are_right(of, false, false) && units_are_right(of, false, true) &&
           units_are_right(of, true, false) && units_are_right(of, true, true);
  };
  static const bool half = right(Dtype::kFloat16), bfloat = right(Dtype::kBFloat16);
  return dtype == Dtype::kFloat16 ? half : bfloat;
}

// The addend, or what replaces it without one.
const Tensor& addend_or(const ProductTerms& terms, const Tensor& unread) {
  return terms.addend == nullptr ? unread : *terms.addend;
}

}  // namespace

uint32_t counted(int64_t elements) {
  require(elements <= std::numeric_limits<uint32_t>::max(), elements,
          " elements are more than a kernel counts");
  return static_cast<uint32_t>(elements);
}

MatrixStrides strides_of(const Tensor& matrices) {
  int64_t last = 0;
  const auto along = [&](int axis) {
    if (matrices.size[axis] == 1) return uint32_t{0};
    last += (matrices.size[axis] - 1) * matrices.stride[axis];
    return counted(matrices.stride[axis]);
  };
  const MatrixStrides strides{along(0), along(1), along(2)};
  counted(last + 1);
  return strides;
}

Tensor in_pieces(const Tensor& matrices) {
  const auto lies = [&](int axis) {
    return matrices.size[axis] == 1 || matrices.stride[axis] == 1;
  };
  return lies(1) || lies(2) ? matrices : dense(matrices);
}

void dispatch_tiles(const std::string& file, const std::string& function,
                    const Arguments& arguments, const ProductExtents& p, int64_t batch,
                    Dtype dtype) {
  dispatch_cut(file, function, arguments, p, batch, cut_of(p, batch, false), dtype);
}

void dispatch_product(const std::string& function, Arguments arguments, const Region& out,
                      const Addend& addend, const ProductExtents& p, int64_t batch, Dtype dtype,
                      const Finishing& finishing, bool in_parts) {
  counted(batch * p.m * p.n);
  const Cut cut = cut_of(p, batch, in_parts);
  const bool units = function == "multiply" && takes_units(cut.tile, dtype);
  const std::string file = units ? "tensor_product" : "matrix_product";
  const std::string& kernel = units ? kByUnits : function;
  add_finish(arguments, finishing, out);
  if (cut.parts.count == 1) {
    arguments.add(out).add(cut.parts);  // has no parts' sums
    return dispatch_cut(file, kernel, arguments, p, batch, cut, dtype);
  }
  const std::array<int64_t, 4> sizes{batch, cut.parts.count, p.m, p.n};
  counted(batch * cut.parts.count * p.m * p.n);
  const Tensor sums = metal::empty_contiguous(Dtype::kFloat32, sizes);
  arguments.add(sums).add(cut.parts);
  dispatch_cut(file, kernel, arguments, p, batch, cut, dtype);
  Arguments added(out, sums, addend.values, p, addend.strides, cut.parts);
  add_finish(added, finishing, out);
  dispatch("split_product", "add_parts_" + metal_name(dtype), added,
           threads_for(batch * p.m * p.n));
}

MatrixStrides strides_of_addend(const ProductTerms& terms) {
  return terms.addend == nullptr ? MatrixStrides{} : strides_of(*terms.addend);
}

double operations_of(int64_t batch, int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) *
         static_cast<double>(k);
}

bool is_split(const ProductExtents& p, int64_t batch) {
  return cut_of(p, batch, true).parts.count > 1;
}

bool is_for_library(double operations) {
  return operations >= MetalDevice::instance().library_from();
}

namespace {

bool is_vector(const Tensor& out) { return out.size[1] == 1 || out.size[2] == 1; }

ProductExtents extents_of(const Tensor& out, int64_t k, const ProductTerms& terms) {
  return {counted(out.size[1]), counted(out.size[2]), counted(k), terms.alpha, terms.beta};
}

// As the kernels have them.
struct Sums {
  uint32_t n, k;
  float alpha, beta;
};
struct Steps {
  uint32_t x_step, x_batch, b_down, b_across, b_batch, addend_step, addend_batch;
};
constexpr uint64_t kSlices = 8;  // SIMD groups that share sums

// Of two vectors or a matrix and one: the matrix is always `b`, whose columns give the results.
void encode_vectors(const Tensor& out, const Tensor& a, const Tensor& b,
                    const ProductTerms& terms) {
  const bool row = out.size[1] == 1;
  const MatrixStrides of_x = strides_of(row ? a : b);
  const MatrixStrides of_b = strides_of(row ? b : a);
  const MatrixStrides of_addend = strides_of_addend(terms);
  const Sums p{counted(row ? out.size[2] : out.size[1]), counted(a.size[2]), terms.alpha,
               terms.beta};
  const Steps steps{.x_step = row ? of_x.column : of_x.row,
                    .x_batch = of_x.batch,
                    .b_down = row ? of_b.row : of_b.column,
                    .b_across = row ? of_b.column : of_b.row,
                    .b_batch = of_b.batch,
                    .addend_step = row ? of_addend.column : of_addend.row,
                    .addend_batch = of_addend.batch};
  Arguments arguments(out, row ? a : b, row ? b : a, addend_or(terms, a), p, steps);
  add_finish(arguments, row ? terms.finishing : terms.finishing.turned(), region_of(a));
  const auto batch = static_cast<uint64_t>(out.size[0]);
  const std::string name = metal_name(out.dtype);
  if (steps.b_down == 1) {
    dispatch("vector_product", "dot_rows_" + name, arguments,
             Grid{{static_cast<uint64_t>(p.n) * kSimdWidth, batch, 1}, {kSimdWidth, 1, 1}});
  } else {
    constexpr uint64_t kGroup = kSimdWidth * kSlices;
    dispatch("vector_product", "sum_columns_" + name, arguments,
             Grid{{quotient(p.n, kSimdWidth) * kGroup, batch, 1}, {kGroup, 1, 1}});
  }
}

// An operand as the kernels read it, which may be a copy. Matrix units take none that repeats along
// an axis.
Tensor readable(const Tensor& matrices) {
  const auto repeats = [&](int axis) {
    return matrices.size[axis] > 1 && matrices.stride[axis] == 0;
  };
  const bool units =
      matrices.dtype != Dtype::kFloat32 && MetalDevice::instance().has_matrix_units();
  return units && (repeats(1) || repeats(2)) ? dense(matrices) : in_pieces(matrices);
}

void encode(const Tensor& out, const Tensor& a, const Tensor& b, const ProductTerms& terms) {
  if (is_vector(out)) return encode_vectors(out, a, b, terms);
  const ProductExtents p = extents_of(out, a.size[2], terms);
  const Addend addend{region_of(addend_or(terms, a)), strides_of_addend(terms)};
  const Arguments arguments(out, a, b, addend.values, p, strides_of(a), strides_of(b), a,
                            MatrixStrides{}, addend.strides);  // no factors
  dispatch_product("multiply", arguments, region_of(out), addend, p, out.size[0], out.dtype,
                   terms.finishing);
}

// All that decides what a kernel does, but where its operands lie.
Key key_of(const Tensor& out, const Tensor& a, const Tensor& b, const ProductTerms& terms) {
  Key key("own product");
  key.add(static_cast<int64_t>(out.dtype)).add(out.sizes()).add(a.sizes());
  for (const Tensor* operand : {&a, &b, &addend_or(terms, a)}) {
    const MatrixStrides of = strides_of(*operand);
    key.add(int64_t{of.batch}).add(int64_t{of.row}).add(int64_t{of.column});
  }
  key.add(int64_t{terms.addend != nullptr}).add(double{terms.alpha}).add(double{terms.beta});
  return key.add_bytes(&terms.finishing.finish, sizeof(Finish));
}

void product_by_library(const Tensor& out, const Tensor& a, const Tensor& b,
                        const ProductTerms& terms) {
  const Tensor left = readable(a), right = readable(b);  // whole: a sample would copy a part
  State::current().stream().matmul(out, left, right, terms.addend, terms.alpha, terms.beta);
  const Region made = region_of(out);
  finish_elements(made, out.dtype, out.size[0], out.size[1], out.size[2], terms.finishing);
  const bool split = !is_vector(out) && is_split(extents_of(out, a.size[2], terms), out.size[0]);
  if (split || terms.finishing.reads(made)) return;
  State::current().sample(key_of(out, a, b, terms), [&] { encode(out, left, right, terms); });
}

}  // namespace

void product(const Tensor& out, const Tensor& a, const Tensor& b, const ProductTerms& terms) {
  const double operations = operations_of(out.size[0], out.size[1], out.size[2], a.size[2]);
  const auto key = [&] { return key_of(out, a, b, terms); };
  if (is_for_library(operations) || State::current().is_repeated(operations, key)) {
    return State::current().stream().for_library([&] { product_by_library(out, a, b, terms); });
  }
  encode(out, readable(a), readable(b), terms);
}

namespace {

// As integer_product.metal has it.
struct Product {
  int64_t m, n, k, alpha, beta;
};

// Sums wrap around as the dtype does.
void integer_product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self,
                     double beta, double alpha) {
  require(out.dtype != Dtype::kBool, "truth values have no products: ", a);
  if (out.empty()) return;
  const Tensor sum = metal::empty_contiguous(Dtype::kInt64, out.sizes());
  if (self != nullptr) metal::copy(broadcast(*self, out.sizes()), sum);
  const int32_t last = out.dimensions - 1;
  const Product product{out.size[last - 1], out.size[last], a.size[last], whole_factor(alpha),
                        self == nullptr ? 0 : whole_factor(beta)};
  dispatch("integer_product", "multiply",
           Arguments(sum, converted(a, Dtype::kInt64), converted(b, Dtype::kInt64), product),
           threads_for(sum));
  metal::copy(sum, out);
}

// A tensor [.., M, N] as [B, M, N], a batch that repeats one matrix as that one.
Tensor batched(const Tensor& tensor) {
  Tensor view = tensor;
  if (tensor.dimensions == 2) {
    view.dimensions = 3;
    view.size = {1, tensor.size[0], tensor.size[1]};
    view.stride = {0, tensor.stride[0], tensor.stride[1]};
  }
  if (view.stride[0] == 0) view.size[0] = 1;
  return view;
}

// The addend [1 or B, 1 or M, 1 or N]: axes along which it repeats are left to the device.
Tensor addend_of(const Tensor& self, const Tensor& out) {
  require(self.dtype == out.dtype, "the addend ", self, " does not have the dtype of ", out);
  Tensor view = broadcast(self, out.sizes());
  for (int32_t axis = 0; axis < view.dimensions; ++axis) {
    if (view.stride[axis] == 0) view.size[axis] = 1;
  }
  view = batched(view);
  // The device may write the result before it has read all of the addend.
  const bool is_result = self.storage->device() == out.storage->device();
  return is_result ? backend::clone(view) : view;
}

// A sum of no products is zero, which one product with zero is too.
Tensor zeros(Dtype dtype, std::array<int64_t, 3> sizes) {
  Tensor fresh = metal::empty_contiguous(dtype, sizes);
  backend::fill_zero(fresh);
  return fresh;
}

// out = finish(alpha * a * b + beta * self); out is dense.
void encode(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self, float beta,
            float alpha, const Finishing& finishing) {
  const Tensor result = batched(out);
  const auto& size = result.size;
  ProductTerms terms{nullptr, alpha, 0, finishing};
  Tensor addend;
  if (self != nullptr && beta != 0) {  // a NaN in an unused addend is not seen, as in torch
    addend = addend_of(*self, out);
    terms.addend = &addend;
    terms.beta = beta;
  }
  if (multiply_if_packed(result, batched(a), batched(b), terms)) return;
  if (a.size[a.dimensions - 1] > 0) return product(result, batched(a), batched(b), terms);
  terms.alpha = 1;  // zero times infinity is not zero
  product(result, zeros(out.dtype, {size[0], size[1], 1}), zeros(out.dtype, {1, 1, size[2]}),
          terms);
}

}  // namespace

void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self, float beta,
              float alpha, const Finishing& finishing) {
  const bool in_place = out.is_contiguous();
  const Tensor result = in_place ? out : metal::empty_contiguous(out.dtype, out.sizes());
  encode(result, a, b, self, beta, alpha, finishing);
  if (!in_place) metal::copy(result, out);
}

}  // namespace menagerie::metal

namespace menagerie {

void backend::multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self,
                       double beta, double alpha) {
  require(a.dtype != Dtype::kFloat64, "Metal has no float64: ", a);
  if (!is_floating(out.dtype)) return metal::integer_product(out, a, b, self, beta, alpha);
  metal::multiply(out, a, b, self, static_cast<float>(beta), static_cast<float>(alpha), {});
}

}  // namespace menagerie
