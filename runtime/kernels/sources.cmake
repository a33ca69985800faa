# The kernels behind kernels/kernels.h where the host computes: on x86-64 oneDNN's and our own, among
# which dispatch.cpp chooses; elsewhere, as no wheel brings oneDNN there, the portable ones.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT MENAGERIE_PORTABLE_KERNELS)
  # The wheel's headers and CMake files are stored in the environment, four levels above site-packages.
  list(APPEND CMAKE_PREFIX_PATH ${Python_SITEARCH}/../../..)
  find_package(dnnl 3.2 CONFIG REQUIRED)
  set(kernel_libraries DNNL::dnnl)
  set(kernel_sources
      kernels/dispatch.cpp
      kernels/panels.cpp
      kernels/onednn/convolution.cpp
      kernels/onednn/kernel.cpp
      kernels/onednn/matrix_product.cpp
      kernels/onednn/support.cpp
      kernels/onednn/winograd.cpp
      kernels/finish.cpp
      kernels/simd/convolutions.cpp
      kernels/simd/depthwise.cpp
      kernels/simd/expanders.cpp
      kernels/simd/expansion.cpp
      kernels/simd/kernels.cpp
      kernels/simd/kernels_avx512.cpp
      kernels/simd/kernels_bf16.cpp
      kernels/simd/kernels_vnni.cpp
      kernels/simd/narrow.cpp
      kernels/simd/products.cpp)
  # The files for AVX-512 are compiled for a processor of their own, whatever the compiler.
  set_source_files_properties(
    kernels/simd/kernels_avx512.cpp
    PROPERTIES COMPILE_OPTIONS
               "$<IF:$<BOOL:${MENAGERIE_ZIG}>,-mcpu=x86_64_v4,-march=x86-64-v4>")
  set_source_files_properties(
    kernels/simd/kernels_bf16.cpp
    PROPERTIES
      COMPILE_OPTIONS
      "$<IF:$<BOOL:${MENAGERIE_ZIG}>,-mcpu=x86_64_v4+avx512bf16,-march=x86-64-v4;-mavx512bf16>")
  set_source_files_properties(
    kernels/simd/kernels_vnni.cpp
    PROPERTIES
      COMPILE_OPTIONS
      "$<IF:$<BOOL:${MENAGERIE_ZIG}>,-mcpu=x86_64_v4+avx512vnni,-march=x86-64-v4;-mavx512vnni>")
else()
  set(kernel_libraries)
  set(kernel_sources kernels/portable/convolution.cpp kernels/finish.cpp
                     kernels/portable/matrix_product.cpp kernels/portable/product.cpp
                     kernels/portable/softmax.cpp)
endif()
