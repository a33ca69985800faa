# The kernel library behind common/kernels.h where the host computes.
# The wheel's headers and CMake files lie in the environment, four levels above site-packages.
list(APPEND CMAKE_PREFIX_PATH ${Python_SITEARCH}/../../..)
find_package(dnnl 3.2 CONFIG REQUIRED)
include(common/x86/sources.cmake)
set(kernel_sources ${x86_sources} common/onednn/support.cpp common/onednn/kernel.cpp
                   common/onednn/convolution.cpp common/onednn/matrix_product.cpp
                   common/onednn/weights.cpp common/onednn/winograd.cpp)
set(kernel_libraries DNNL::dnnl)
