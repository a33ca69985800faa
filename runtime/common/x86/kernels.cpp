#include "common/x86/kernels.h"

#include <limits>
#include <oneapi/dnnl/dnnl.hpp>

#include "common/context.h"

namespace menagerie::x86 {

namespace {

bool has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

}  // namespace

const Kernels& kernels() {
  static const bool wide = has(dnnl::cpu_isa::avx512_core);
  return wide ? avx512_kernels : avx2_kernels;
}

const IntegerKernel* integer_kernel() {
  static const bool can = has(dnnl::cpu_isa::avx512_core_vnni);
  return can ? &vnni_kernel : nullptr;
}

void multiply_rows(const PanelKernel& kernel, ProductTile tile, const Finish& finish) {
  const float* input = tile.input;
  float* output = tile.output;
  each_tile(tile.rows, kernel.most_rows, [&](int64_t first, int64_t rows) {
    tile.input = input + first * tile.input_row;
    tile.output = output + first * tile.output_row;
    tile.rows = rows;
    kernel.multiply(tile, finish);
  });
}

bool finish_of(const kernels::Epilogue& epilogue, Finish& finish) {
  using kernels::Activation;
  if (epilogue.binary != kernels::Binary::kNone) return false;
  switch (epilogue.activation) {
    case Activation::kNone:
      return true;
    case Activation::kRelu:
      finish.clamps = true;
      finish.highest = std::numeric_limits<float>::infinity();
      return true;
    case Activation::kClamp:
      finish.clamps = true;
      finish.lowest = epilogue.alpha;
      finish.highest = epilogue.beta;
      return true;
    case Activation::kSwish:
    case Activation::kSigmoid:
    case Activation::kHardSwish:
    case Activation::kHardSigmoid:
    case Activation::kGeluErf:
      finish.activation = epilogue.activation;
      return true;
    case Activation::kLeakyRelu:
    case Activation::kGeluTanh:
    case Activation::kTanh:
      return false;
  }
  return false;
}

bool is_exponential(const Finish& finish) {
  using kernels::Activation;
  return finish.activation == Activation::kSwish || finish.activation == Activation::kSigmoid;
}

bool is_faster_gelu(const Finish& finish) {
  return kernels().faster_gelu && finish.activation == kernels::Activation::kGeluErf;
}

void note_own_kernel() {
  if (Profile* profile = Context::current().profile()) profile->add_work("(own kernel)", 0, 0);
}

}  // namespace menagerie::x86
