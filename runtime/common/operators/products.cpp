// Matrix products: checking operands.
#include "common/operators.h"
#include "common/shim_support.h"

using namespace menagerie;

namespace {

void check(const Tensor& out, const Tensor& a, const Tensor& b, int32_t dimensions) {
  require(a.dimensions == dimensions && b.dimensions == dimensions && out.dimensions == dimensions,
          "operands must have ", dimensions, " axes, not ", a, " and ", b);
  const int32_t row = dimensions - 2;
  const int32_t column = dimensions - 1;
  const bool batches = dimensions == 2 || (a.size[0] == b.size[0] && a.size[0] == out.size[0]);
  require(batches && a.size[column] == b.size[row] && out.size[row] == a.size[row] &&
              out.size[column] == b.size[column],
          "shapes do not fit: ", a, " x ", b, " -> ", out);
  require(a.dtype == b.dtype && a.dtype == out.dtype, "dtypes differ: ", a, " x ", b, " -> ", out);
}

void multiply(const Tensor& out, const Tensor& a, const Tensor& b, int32_t dimensions,
              const Tensor* self = nullptr, double beta = 0, double alpha = 1) {
  check(out, a, b, dimensions);
  if (!out.empty()) backend::multiply(out, a, b, self, beta, alpha);
}

}  // namespace

AOTITorchError aoti_torch_device_mm_out(AtenTensorHandle out, AtenTensorHandle self,
                                        AtenTensorHandle mat2) {
  return kernel(__func__, [&] { multiply(operand(out), operand(self), operand(mat2), 2); });
}

AOTITorchError aoti_torch_device_addmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                           AtenTensorHandle mat1, AtenTensorHandle mat2,
                                           double beta, double alpha) {
  return kernel(__func__, [&] {
    multiply(operand(out), operand(mat1), operand(mat2), 2, &operand(self), beta, alpha);
  });
}

AOTITorchError aoti_torch_device_bmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                         AtenTensorHandle mat2) {
  return kernel(__func__, [&] { multiply(operand(out), operand(self), operand(mat2), 3); });
}

AOTITorchError aoti_torch_device_baddbmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                             AtenTensorHandle batch1, AtenTensorHandle batch2,
                                             double beta, double alpha) {
  return kernel(__func__, [&] {
    multiply(operand(out), operand(batch1), operand(batch2), 3, &operand(self), beta, alpha);
  });
}
