# Kernels of our own for x86-64; the files for AVX-512 have their own processor, whoever compiles.
set(x86_sources
    common/x86/kernels.cpp
    common/x86/kernels_avx2.cpp
    common/x86/kernels_avx512.cpp
    common/x86/kernels_vnni.cpp
    common/x86/dense_product.cpp
    common/x86/depthwise.cpp
    common/x86/expanding.cpp
    common/x86/expanding_windows.cpp
    common/x86/expansion.cpp
    common/x86/packed_panels.cpp
    common/x86/packed_right.cpp
    common/x86/panel_packing.cpp
    common/x86/pointwise.cpp
    common/x86/sequence.cpp
    common/x86/sliding.cpp
    common/x86/softmax.cpp)
set_source_files_properties(
  common/x86/kernels_avx512.cpp
  PROPERTIES COMPILE_OPTIONS
             "$<IF:$<BOOL:${MENAGERIE_ZIG}>,-mcpu=x86_64_v4,-march=x86-64-v4>")
set_source_files_properties(
  common/x86/kernels_vnni.cpp
  PROPERTIES COMPILE_OPTIONS
             "$<IF:$<BOOL:${MENAGERIE_ZIG}>,-mcpu=x86_64_v4+avx512vnni,-march=x86-64-v4;-mavx512vnni>")
