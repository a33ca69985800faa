# Kernels of our own behind common/kernels.h, for processors that oneDNN's wheel does not serve.
set(kernel_sources
    common/portable_kernels/convolution.cpp
    common/portable_kernels/depthwise.cpp
    common/portable_kernels/finish.cpp
    common/portable_kernels/matrix_product.cpp
    common/portable_kernels/packed_right.cpp
    common/portable_kernels/product.cpp
    common/portable_kernels/softmax.cpp
    common/portable_kernels/tile.cpp
    common/portable_kernels/window.cpp)
set(kernel_libraries)
