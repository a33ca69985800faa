// The corpora and seeded mutations of them, wherever the C++ units are tested.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "check.h"
#include "files.h"
#include "target.h"

namespace {

std::vector<std::string> corpus(const std::string& target) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(MENAGERIE_CORPUS) / target)) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<std::string> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

// For a while longer than usual: MENAGERIE_MUTATIONS=1000000 build/native/menagerie-native-tests
int mutations() {
  const char* asked = std::getenv("MENAGERIE_MUTATIONS");
  return asked == nullptr ? 20'000 : std::atoi(asked);
}

}  // namespace

TEST("no input of a corpus harms its reader, nor does any cut or mutation of it") {
  for (const auto& [name, target] : fuzz::targets()) {
    const std::vector<std::string> inputs = corpus(name);
    size_t taken = 0;
    for (const std::string& input : inputs) {
      taken += fuzz::takes(target, input);
      for (size_t length = 0; length < std::min<size_t>(input.size(), 600); ++length) {
        fuzz::takes(target, std::string_view(input).substr(0, length));
      }
    }
    CHECK(name == "trust" || taken > 0);  // else it is not what the reader reads
    CHECK(taken < inputs.size());
    check::Dice dice(7);
    for (int i = 0; i < mutations(); ++i) {
      fuzz::takes(target, check::mutated(inputs[dice.roll(inputs.size())], dice));
    }
  }
}
