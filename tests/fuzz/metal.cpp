// Metal source on its way to the emulated device.
#include <algorithm>

#include "metal/emulated/source.h"
#include "metal/emulated/tokens.h"
#include "target.h"

using namespace menagerie::metal::emulated;

FUZZ(metal) {
  const std::string plain = without_metal_headers(bytes);
  const bool open = !bytes.empty() && bytes.back() != '\n';  // its last line is ended
  MUST(std::ranges::count(plain, '\n') == std::ranges::count(bytes, '\n') + (open ? 1 : 0));
  size_t end = 0;
  for (const Token& token : tokens_of(plain)) {
    MUST(token.offset >= end && !token.text.empty());
    end = token.offset + token.text.size();
    MUST(end <= plain.size());
  }
  const ShaderSource source = translate(plain);
  kernel_table(source.kernels);
}
