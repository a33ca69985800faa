// The C types of the shim ABI, and the macros that define its functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// Registers as the vectorised functions take them: the same as __m256 and __m256d.
using Float8 = float __attribute__((vector_size(32)));
using Double4 = double __attribute__((vector_size(32)));

// Where torch's own headers are included too, as in a test, their types are the same.
#ifndef AOTI_TORCH_MACRO_H
struct AtenTensorOpaque;
using AtenTensorHandle = AtenTensorOpaque*;
struct AOTIProxyExecutorOpaque;
using AOTIProxyExecutorHandle = AOTIProxyExecutorOpaque*;
using AOTITorchError = int32_t;
#endif
#ifndef AOTI_TORCH_SHIM_MPS
struct AOTIMetalShaderLibraryOpaque;
using AOTIMetalShaderLibraryHandle = AOTIMetalShaderLibraryOpaque*;
struct AOTIMetalKernelFunctionOpaque;
using AOTIMetalKernelFunctionHandle = AOTIMetalKernelFunctionOpaque*;
using aoti_torch_mps_command_block_callback_t = void (*)(AOTIMetalKernelFunctionHandle, void*);
#endif

// The prefix of each function in shims.toml; tests compile them with torch's declarations.
#define MENAGERIE_ABI extern "C" __attribute__((visibility("default")))
#define MENAGERIE_SHIM MENAGERIE_ABI AOTITorchError

// One body defines a function for each target; MENAGERIE_DEVICE is cpu or mps.
#define MENAGERIE_JOINED(device, name) aoti_torch_##device##_##name
#define MENAGERIE_SPELT(device, name) MENAGERIE_JOINED(device, name)
#define MENAGERIE_OPERATOR(name) MENAGERIE_SHIM MENAGERIE_SPELT(MENAGERIE_DEVICE, name)
