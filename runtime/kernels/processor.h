// The processor's instructions, as oneDNN sees them: ONEDNN_MAX_CPU_ISA restricts its kernels and
// ours alike.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace menagerie::kernels {

inline bool processor_has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

inline bool has_avx512() { return processor_has(dnnl::cpu_isa::avx512_core); }
inline bool has_avx512_vnni() { return processor_has(dnnl::cpu_isa::avx512_core_vnni); }
inline bool has_avx512_bf16() { return processor_has(dnnl::cpu_isa::avx512_core_bf16); }

// Return whether the processor sums products of eight-bit integers in 32 bits. Without that, oneDNN
// sums two in 16 bits, which overflow (oneDNN, "Nuances of int8 Computations").
inline bool multiplies_integers() {
  static const bool can = has_avx512_vnni() || processor_has(dnnl::cpu_isa::avx2_vnni);
  return can;
}

}  // namespace menagerie::kernels
