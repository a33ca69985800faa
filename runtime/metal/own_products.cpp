#include "metal/own_products.h"

#include <cstdlib>
#include <optional>

#include "metal/copy.h"
#include "metal/graph_product.h"
#include "metal/operands.h"
#include "metal/split_product.h"
#include "metal/tiles.h"

namespace menagerie::metal {
namespace {

// On M1 and M2 MPSGraph reads past the operands of such products (github.com/pytorch/pytorch,
// issues 195163 and 193487).
constexpr int64_t kWrongInner = 32767;
constexpr int64_t kWrongOuter = 16;

// As the kernels have them.
struct Sums {
  int64_t n, k;
  float alpha, beta;
};
struct Steps {
  int64_t x_step, x_batch, b_down, b_across, b_batch, addend_step, addend_batch;
};
constexpr uint64_t kSlices = 8;  // SIMD groups that share sums

bool is_own(const Tensor& out, int64_t k) {
  const int64_t m = out.size[1];
  const int64_t n = out.size[2];
  const bool wrong = k >= kWrongInner && m >= kWrongOuter && n >= kWrongOuter;
  return wrong || !is_worth_a_graph(Work::kProduct, operations_of(out.size[0], m, n, k));
}

// Of two vectors or a matrix and one: the matrix is always `b`, whose columns give the results.
void encode_vectors(const Tensor& out, const Tensor& a, const Tensor& b,
                    const ProductTerms& terms) {
  const bool row = out.size[1] == 1;
  const MatrixStrides of_x = strides_of(row ? a : b);
  const MatrixStrides of_b = strides_of(row ? b : a);
  const MatrixStrides of_addend = strides_of_addend(terms);
  const Sums p{row ? out.size[2] : out.size[1], a.size[2], terms.alpha, terms.beta};
  const Steps steps{.x_step = row ? of_x.column : of_x.row,
                    .x_batch = of_x.batch,
                    .b_down = row ? of_b.row : of_b.column,
                    .b_across = row ? of_b.column : of_b.row,
                    .b_batch = of_b.batch,
                    .addend_step = row ? of_addend.column : of_addend.row,
                    .addend_batch = of_addend.batch};
  Arguments arguments;
  arguments.add(out).add(row ? a : b).add(row ? b : a).add(addend_or(terms, a));
  arguments.add(p).add(steps);
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

// The matrices, or a copy if neither rows nor columns lie in one piece: a group of threads reads
// them several times, and neighbours among the threads want neighbours in memory.
Tensor in_pieces(const Tensor& matrices) {
  const MatrixStrides of = strides_of(matrices);
  return of.row <= 1 || of.column <= 1 ? matrices : dense(matrices);
}

void encode(const Tensor& out, const Tensor& left, const Tensor& right, const ProductTerms& terms) {
  const Tensor a = in_pieces(left);
  const Tensor b = in_pieces(right);
  if (out.size[1] == 1 || out.size[2] == 1) return encode_vectors(out, a, b, terms);
  const ProductExtents p{out.size[1], out.size[2], a.size[2], terms.alpha, terms.beta};
  const Parts parts = parts_of(p, out.size[0]);
  if (!parts.is_whole()) return split_product(out, a, b, p, parts, terms);
  Arguments arguments;
  arguments.add(out).add(a).add(b).add(addend_or(terms, a));  // is not read
  arguments.add(p).add(strides_of(a)).add(strides_of(b)).add(strides_of_addend(terms));
  add_finish(arguments, terms.finishing, region_of(a));
  dispatch_tiles("matrix_product", "multiply", arguments, p, out.size[0], out.dtype);
}

// MENAGERIE_METAL_GRAPH_FROM sets the border of all work, in GFLOP: `make mac-day` tries several.
std::optional<double> given_border() {
  const char* given = std::getenv("MENAGERIE_METAL_GRAPH_FROM");
  if (given == nullptr) return std::nullopt;
  char* end = nullptr;
  const double border = std::strtod(given, &end);
  require(end != given && *end == '\0' && border >= 0, "MENAGERIE_METAL_GRAPH_FROM is '", given,
          "': it takes a number of GFLOP, such as 1");
  return border * 1e9;
}

}  // namespace

const Tensor& addend_or(const ProductTerms& terms, const Tensor& unread) {
  return terms.addend == nullptr ? unread : *terms.addend;
}

MatrixStrides strides_of_addend(const ProductTerms& terms) {
  return terms.addend == nullptr ? MatrixStrides{} : strides_of(*terms.addend);
}

double operations_of(int64_t batch, int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) *
         static_cast<double>(k);
}

bool is_worth_a_graph(Work work, double operations) {
  static const std::optional<double> given = given_border();
  return operations >= (given ? *given : MetalDevice::instance().graph_from(work));
}

void product(const Tensor& out, const Tensor& a, const Tensor& b, const ProductTerms& terms) {
  if (is_own(out, a.size[2])) return encode(out, a, b, terms);
  product_by_graph(out, a, b, terms);
}

}  // namespace menagerie::metal
