// A linear layer with a weight as torchao's experimental kernels for Metal keep it: the operator
// torchao::_linear_fp_act_4bit_weight (pytorch/ao, torchao/experimental/ops/mps).
#include <algorithm>
#include <array>

#include "common/shim_support.h"
#include "metal/copy.h"
#include "metal/operands.h"
#include "metal/packed_product.h"

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
AOTITorchError aoti_torch_mps__linear_fp_act_4bit_weight(AtenTensorHandle A, AtenTensorHandle B,
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
