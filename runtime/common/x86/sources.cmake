# Kernels of our own for x86-64; the file for AVX-512 has its own processor, whoever compiles.
set(x86_sources common/x86/kernels.cpp common/x86/kernels_avx2.cpp common/x86/kernels_avx512.cpp
                common/x86/depthwise.cpp common/x86/packed_right.cpp common/x86/pointwise.cpp
                common/x86/softmax.cpp)
set_source_files_properties(
  common/x86/kernels_avx512.cpp
  PROPERTIES COMPILE_OPTIONS
             "$<IF:$<BOOL:${MENAGERIE_ZIG}>,-mcpu=x86_64_v4,-march=x86-64-v4>")
