// Products with weights that the bundle keeps as integers, and torchao's linear layer with four
// bits a number: torchao::_linear_fp_act_4bit_weight (pytorch/ao, torchao/experimental/ops/mps).
#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "common/quantised.h"
#include "common/shim_support.h"
#include "metal/operands.h"
#include "metal/products.h"

namespace menagerie::metal {
namespace {

constexpr int64_t kRows = 4;  // of a SIMD group that multiplies a vector
constexpr int64_t kWord = 4;  // bytes
constexpr int32_t kWholeRow = 31;

// As the kernels have them.
struct Packing {
  uint32_t row_bytes, groups;
  int32_t shift, turned;
};
struct Vectors {
  uint32_t n, k, x_step, x_batch, addend_step, addend_batch;
  float alpha, beta;
};

// A weight as an operand: its rows are the matrix's, or when turned its columns.
struct PackedOperand {
  PackedWeight weight;
  bool turned = false;
};

std::string name_of(PackedWeight::Form form) {
  const bool eight = form == PackedWeight::Form::kEight;
  return eight ? "Eight" : form == PackedWeight::Form::kFour ? "Four" : "Above";
}

int64_t group_of(const PackedWeight& weight) { return weight.columns / weight.groups; }

int32_t shift_of(const PackedWeight& weight) {
  if (weight.groups == 1) return kWholeRow;
  return std::countr_zero(static_cast<uint64_t>(group_of(weight)));
}

Packing packing_of(const PackedWeight& weight, bool turned) {
  counted(weight.rows * weight.row_bytes);
  return {counted(weight.row_bytes), counted(weight.groups), shift_of(weight), turned ? 1 : 0};
}

// The integers that a matrix [1 or B, R, C] stands for, if they are one matrix for all of the
// batch.
std::optional<PackedOperand> packed_behind(const Tensor& matrix) {
  if (matrix.size[0] != 1) return std::nullopt;
  Tensor rows = matrix;
  rows.dimensions = 2;
  const auto laid = [&](int first, int second) {
    rows.size = {matrix.size[first], matrix.size[second]};
    rows.stride = {matrix.stride[first], matrix.stride[second]};
    return rows_behind(rows);
  };
  std::optional<PackedRows> found = laid(1, 2);
  const bool turned = !found.has_value();
  if (turned) found = laid(2, 1);
  if (!found.has_value() || is_half(found->all->values.dtype)) return std::nullopt;
  const NarrowRows& all = *found->all;
  PackedOperand operand{{}, turned};
  PackedWeight& weight = operand.weight;
  weight.form =
      all.values.dtype == Dtype::kInt8 ? PackedWeight::Form::kEight : PackedWeight::Form::kFour;
  weight.rows = rows.size[0];
  weight.columns = rows.size[1];
  weight.row_bytes = all.values.size[1];
  weight.groups = all.scales.size[1];
  if (weight.groups != 1 && !std::has_single_bit(static_cast<uint64_t>(group_of(weight)))) {
    return std::nullopt;
  }
  const auto part = [&](const Tensor& of) {
    Tensor view = of;
    view.offset_bytes += found->first * of.stride[0] * element_size(of.dtype);
    view.size[0] = weight.rows;
    return region_of(view);
  };
  weight.integers = part(all.values);
  weight.scales = part(all.scales);
  return operand;
}

// Whether a lane may take a word of integers, all of one group.
bool is_in_words(const PackedWeight& weight) {
  const int64_t in_word = weight.form == PackedWeight::Form::kEight ? 4 : 8;
  return weight.integers.offset % kWord == 0 && weight.columns % in_word == 0 &&
         group_of(weight) % in_word == 0;
}

Arguments operands_of(const Tensor& out, const Tensor& x, const PackedWeight& weight,
                      const ProductTerms& terms) {
  const bool offsets = weight.form == PackedWeight::Form::kAbove;
  return Arguments(out, x, weight.integers, weight.scales,
                   offsets ? weight.offsets : weight.scales,  // is not read
                   terms.addend == nullptr ? x : *terms.addend);
}

// Of a vector and a weight, each of whose rows gives an element of the result.
void encode_rows(const Tensor& out, const Tensor& x, const PackedWeight& weight, uint32_t x_step,
                 uint32_t addend_step, const ProductTerms& terms, const Finishing& finishing) {
  Arguments arguments = operands_of(out, x, weight, terms);
  arguments.add(Vectors{counted(weight.rows), counted(weight.columns), x_step, strides_of(x).batch,
                        addend_step, strides_of_addend(terms).batch, terms.alpha, terms.beta});
  arguments.add(packing_of(weight, true));
  add_finish(arguments, finishing, region_of(x));
  dispatch("packed_product", "dot_rows_" + name_of(weight.form) + "_" + metal_name(out.dtype),
           arguments,
           Grid{{quotient(weight.rows, kRows) * kSimdWidth, static_cast<uint64_t>(out.size[0]), 1},
                {kSimdWidth, 1, 1}});
}

void encode(const Tensor& out, const Tensor& given, const PackedOperand& operand, bool weight_first,
            const ProductTerms& terms) {
  const Tensor x = in_pieces(given);
  counted(out.elements());
  const PackedWeight& weight = operand.weight;
  const int64_t m = out.size[1];
  const int64_t n = out.size[2];
  const bool rows_give = weight_first != operand.turned;  // a row of it, an element of a vector
  if ((weight_first ? n : m) == 1 && rows_give && is_in_words(weight)) {
    const MatrixStrides of_x = strides_of(x);
    const MatrixStrides of_addend = strides_of_addend(terms);
    return encode_rows(out, x, weight, weight_first ? of_x.row : of_x.column,
                       weight_first ? of_addend.row : of_addend.column, terms,
                       weight_first ? terms.finishing.turned() : terms.finishing);
  }
  const int64_t k = rows_give ? weight.columns : weight.rows;
  Arguments arguments = operands_of(out, x, weight, terms);
  const ProductExtents p{counted(m), counted(n), counted(k), terms.alpha, terms.beta};
  arguments.add(p).add(strides_of(x));
  arguments.add(packing_of(weight, operand.turned));
  arguments.add(strides_of_addend(terms));
  add_finish(arguments, terms.finishing, region_of(x));
  dispatch_tiles("packed_product",
                 std::string(weight_first ? "of_weight_" : "by_weight_") + name_of(weight.form),
                 arguments, p, out.size[0], out.dtype);
}

}  // namespace

void multiply_packed(const Tensor& out, const Tensor& x, const PackedWeight& weight,
                     const ProductTerms& terms) {
  encode(out, x, {weight, /*turned=*/true}, /*weight_first=*/false, terms);
}

bool multiply_if_packed(const Tensor& out, const Tensor& a, const Tensor& b,
                        const ProductTerms& terms) {
  if (const auto right = packed_behind(b)) return encode(out, a, *right, false, terms), true;
  if (const auto left = packed_behind(a)) return encode(out, b, *left, true, terms), true;
  return false;
}

}  // namespace menagerie::metal

using namespace menagerie;
using namespace menagerie::metal;

namespace {

constexpr std::array<int64_t, 4> kGroups{32, 64, 128, 256};

Tensor as_batch(const Tensor& matrix) {
  Tensor view = matrix;
  view.dimensions = 3;
  view.size = {1, matrix.size[0], matrix.size[1]};
  view.stride = {0, matrix.stride[0], matrix.stride[1]};
  return view;
}

void check(const Tensor& x, const Tensor& packed, int64_t group, const Tensor& scales,
           const Tensor& offsets) {
  require(std::ranges::find(kGroups, group) != kGroups.end(), "a group of ", group,
          " numbers is not one of 32, 64, 128 and 256");
  require(is_floating(x.dtype) && x.dtype != Dtype::kFloat64 && packed.dtype == Dtype::kUInt8 &&
              scales.dtype == x.dtype && offsets.dtype == x.dtype,
          "dtypes differ: ", x, " x ", packed, " with scales ", scales, " and offsets ", offsets);
  require(x.dimensions == 2 && packed.dimensions == 2 && scales.dimensions == 2 &&
              offsets.dimensions == 2,
          "operands must have 2 axes, not ", x, ", ", packed, ", ", scales, " and ", offsets);
  const int64_t rows = packed.size[0];
  const int64_t columns = x.size[1];
  const auto fits = [&](const Tensor& of) {
    return of.size[0] == rows && of.size[1] == columns / group;
  };
  require(columns % group == 0 && packed.size[1] == columns / 2 && fits(scales) && fits(offsets),
          "shapes do not fit: ", x, " x ", packed, " with scales ", scales, " and offsets ",
          offsets, " of groups of ", group);
}

}  // namespace

// A[M, K] times the transposed weight, whose number [n, k] is S[n, g] * q + Z[n, g] with g = k /
// group_size: q is the lower half of the byte B[n, k / 2] where k is even, else the upper.
MENAGERIE_SHIM aoti_torch_mps__linear_fp_act_4bit_weight(AtenTensorHandle A, AtenTensorHandle B,
                                                         int64_t group_size, AtenTensorHandle S,
                                                         AtenTensorHandle Z,
                                                         AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& x = operand(A);
    check(x, operand(B), group_size, operand(S), operand(Z));
    const Tensor packed = dense(operand(B));
    const Tensor scales = dense(operand(S));
    const Tensor offsets = dense(operand(Z));
    const int64_t sizes[] = {x.size[0], packed.size[0]};
    Tensor out = metal::empty_contiguous(x.dtype, sizes);
    if (x.empty()) {
      backend::fill_zero(out);
    } else if (!out.empty()) {
      multiply_packed(as_batch(out), as_batch(x),
                      {.form = PackedWeight::Form::kAbove,
                       .integers = region_of(packed),
                       .scales = region_of(scales),
                       .offsets = region_of(offsets),
                       .rows = packed.size[0],
                       .columns = x.size[1],
                       .row_bytes = packed.size[1],
                       .groups = scales.size[1]},
                      {.finishing = {}});
    }
    *ret0 = to_handle(std::move(out));
  });
}
