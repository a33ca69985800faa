#include "metal/own_products.h"

#include <cstdlib>

#include "metal/operands.h"
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

// MENAGERIE_METAL_GRAPH_FROM sets it, in GFLOP: `make mac-day` tries several.
double border(double of_device) {
  static const char* given = std::getenv("MENAGERIE_METAL_GRAPH_FROM");
  return given == nullptr ? of_device : std::atof(given) * 1e9;
}

MatrixStrides strides_of(int64_t batches, int64_t rows, int64_t columns, bool transposed) {
  const int64_t batch = batches == 1 ? 0 : rows * columns;
  return transposed ? MatrixStrides{batch, 1, rows} : MatrixStrides{batch, columns, 1};
}

MatrixStrides strides_of(const std::array<int64_t, 3>& size) {
  return {size[0] == 1 ? 0 : size[1] * size[2], size[1] == 1 ? 0 : size[2], size[2] == 1 ? 0 : 1};
}

struct Layout {
  MatrixStrides a, b, addend;
  float beta;
};

Layout layout_of(const MatmulDescriptor& d) {
  return {strides_of(d.a_batch, d.m, d.k, d.a_transposed),
          strides_of(d.b_batch, d.k, d.n, d.b_transposed),
          strides_of(d.addend.value_or(std::array<int64_t, 3>{1, 1, 1})),
          d.addend.has_value() ? d.beta : 0};
}

// Of two vectors or a matrix and one: the matrix is always `b`, whose columns give the results.
void encode_vectors(const MatmulDescriptor& d, const MatmulOperands& operands,
                    const Finishing& finishing) {
  const Layout of = layout_of(d);
  const bool row = d.m == 1;
  const MatrixStrides& x = row ? of.a : of.b;
  const MatrixStrides& b = row ? of.b : of.a;
  const Sums p{row ? d.n : d.m, d.k, d.alpha, of.beta};
  const Steps steps{.x_step = row ? x.column : x.row,
                    .x_batch = x.batch,
                    .b_down = row ? b.row : b.column,
                    .b_across = row ? b.column : b.row,
                    .b_batch = b.batch,
                    .addend_step = row ? of.addend.column : of.addend.row,
                    .addend_batch = of.addend.batch};
  Arguments arguments;
  arguments.add(operands.out).add(row ? operands.a : operands.b).add(row ? operands.b : operands.a);
  arguments.add(d.addend.has_value() ? operands.addend : operands.a);  // is not read
  arguments.add(p).add(steps);
  add_finish(arguments, row ? finishing : finishing.turned(), operands.a);
  const auto batch = static_cast<uint64_t>(d.batch);
  const std::string name = metal_name(d.dtype);
  if (steps.b_down == 1) {
    dispatch("vector_product", "dot_rows_" + name, arguments,
             Grid{{static_cast<uint64_t>(p.n) * kSimdWidth, batch, 1}, {kSimdWidth, 1, 1}});
  } else {
    constexpr uint64_t kGroup = kSimdWidth * kSlices;
    dispatch("vector_product", "sum_columns_" + name, arguments,
             Grid{{quotient(p.n, kSimdWidth) * kGroup, batch, 1}, {kGroup, 1, 1}});
  }
}

void encode(const MatmulDescriptor& d, const MatmulOperands& operands, const Finishing& finishing) {
  if (d.m == 1 || d.n == 1) return encode_vectors(d, operands, finishing);
  const Layout of = layout_of(d);
  const ProductExtents p{d.m, d.n, d.k, d.alpha, of.beta};
  Arguments arguments;
  arguments.add(operands.out).add(operands.a).add(operands.b);
  arguments.add(d.addend.has_value() ? operands.addend : operands.a);  // is not read
  arguments.add(p).add(of.a).add(of.b).add(of.addend);
  add_finish(arguments, finishing, operands.a);
  dispatch_tiles("matrix_product", "multiply", arguments, p, d.batch, d.dtype);
}

}  // namespace

bool is_worth_a_graph(int64_t batch, int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) *
             static_cast<double>(k) >=
         border(MetalDevice::instance().graph_from());
}

bool is_own(const MatmulDescriptor& d) {
  const bool wrong = d.k >= kWrongInner && d.m >= kWrongOuter && d.n >= kWrongOuter;
  return wrong || !is_worth_a_graph(d.batch, d.m, d.n, d.k);
}

bool is_own_attention(double operations) {
  return operations < border(MetalDevice::instance().parts_from());
}

void product(const MatmulDescriptor& descriptor, const MatmulOperands& operands,
             const Finishing& finishing) {
  if (is_own(descriptor)) return encode(descriptor, operands, finishing);
  State::current().stream().matmul(descriptor, operands);
  finish_elements(operands.out, descriptor.dtype, descriptor.batch, descriptor.m, descriptor.n,
                  finishing);
}

}  // namespace menagerie::metal
