// A bundle's folder: manifest and weights that need not fit each other.
//
// The input is manifest.json, a NUL, and weights.safetensors. In the manifest `@` stands for the
// size of these, `^` for this system, `%` for this machine, `$` for both as a platform names them,
// and `!` for this runtime's ABI, which would hardly ever be right else.
#include "common/bundle.h"

#include "common/platform/machine.h"
#include "menagerie.h"
#include "scratch.h"
#include "target.h"

using namespace menagerie;

namespace {

std::string platform() {
  const std::string system = machine::system() == "darwin" ? "macos" : machine::system();
  const std::string processor =
      machine::architecture() == "aarch64" ? "arm64" : machine::architecture();
  return system + "-" + processor;
}

std::string filled(std::string_view manifest, size_t size) {
  std::string text;
  for (const char c : manifest) {
    if (c == '@') {
      text += std::to_string(size);
    } else if (c == '^') {
      text += machine::system();
    } else if (c == '%') {
      text += machine::architecture();
    } else if (c == '$') {
      text += platform();
    } else if (c == '!') {
      text += std::to_string(MENAGERIE_RUNTIME_ABI);
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

FUZZ(bundle) {
  const size_t end = std::min(bytes.find('\0'), bytes.size());
  const std::string_view weights = bytes.substr(std::min(end + 1, bytes.size()));
  for (const char* name : {"bundle/l.so", "bundle/g"}) fuzz::scratch(name, "x");
  fuzz::scratch("bundle/w", weights);
  const auto folder =
      fuzz::scratch("bundle/manifest.json", filled(bytes.substr(0, end), weights.size()))
          .parent_path();
  const auto bundle = Bundle::open(folder);
  for (const ProgramSpec& program : bundle->manifest().programs) {
    fuzz::takes([&](auto) { bundle->library(program); }, "");
    for (const auto& [ours, theirs] : program.constants) {
      for (const DtypeInfo& wanted : kDtypes) {
        fuzz::takes(
            [&](auto) {
              const Tensor tensor = bundle->constant(theirs, static_cast<int32_t>(wanted.dtype));
            },
            "");
      }
    }
  }
}
