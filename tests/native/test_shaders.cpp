// Reading Metal source for the emulated device: tokens, parameters, and text that is none.
#include "check.h"
#include "metal/emulated/source.h"
#include "metal/emulated/tokens.h"

using namespace menagerie::metal::emulated;

namespace {

const std::string kSource = R"(# 1 "k.metal"
using namespace metal;
template <typename T>
[[max_total_threads_per_threadgroup(64)]]
kernel void fill(device T* out [[buffer(1)]], constant float& value,
                 uint2 at [[thread_position_in_grid]]) {
  threadgroup float shared[8];
  out[at.x] = static_cast<T>(value) + shared[0] + 1.5e-3f; // "text"
}
template [[host_name("fill_float")]] kernel void fill<float>(
    device float* out [[buffer(1)]], constant float& value, uint2 at [[thread_position_in_grid]]);
kernel void plain(device int* out, device const int* in) { out[0] = in[0]; }
)";

}  // namespace

TEST("tokens keep their kinds, places and lines") {
  const auto tokens = tokens_of("# 7 \"a\"\nint a::b = 1e-3f + \"x\\\"y\";");
  CHECK(tokens.size() == 9);
  CHECK(tokens[0].text == "int" && tokens[0].line == 7);
  CHECK(tokens[2].text == "::" && tokens[2].kind == TokenKind::kSign);
  CHECK(tokens[5].text == "1e-3f" && tokens[5].kind == TokenKind::kNumber);
  CHECK(tokens[7].text == "\"x\\\"y\"" && tokens[7].kind == TokenKind::kText);
}

TEST("no line number of a marker overflows") {
  CHECK(tokens_of("# -2147483648 \"a\"\n\nx").size() == 1);
  CHECK(tokens_of("# 2147483647 \"a\"\n\n\n\nx").back().line == 2147483650);
}

TEST("buffers without an index take the lowest that is free") {
  const ShaderSource source = translate(kSource);
  CHECK(source.kernels.size() == 2);
  for (const KernelSource& kernel : source.kernels) {
    const bool filled = kernel.name == "fill_float";
    CHECK(filled || kernel.name == "plain");
    CHECK(kernel.parameters.size() == (filled ? 3U : 2U));
    CHECK(kernel.parameters[0].role == (filled ? 1 : 0));
    CHECK(kernel.parameters[1].role == (filled ? 0 : 1));
  }
}
