// A safetensors file: whole, or from its header on, so that mutations get behind the length.
#include "common/safetensors.h"

#include <numeric>
#include <optional>
#include <vector>

#include "common/quantised.h"
#include "scratch.h"
#include "target.h"

using namespace menagerie;

namespace {

// `h`, the header, a line feed, the data: as a file, its header padded so that the data is aligned.
std::string container(std::string_view text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string header(text.substr(0, end));
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file;
  for (size_t i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  file += header;
  return file.append(text.substr(std::min(end + 1, text.size())));
}

// A weight of integers, if it is one: as many numbers as its bytes have halves, and no more.
void widen(const SafeTensors& file, const std::string& name) {
  const auto weight = [&]() -> std::optional<QuantisedWeight> {
    try {
      return QuantisedWeight(file, name);
    } catch (const Error&) {
      return std::nullopt;
    }
  }();
  if (!weight) return;
  MUST(static_cast<uint64_t>(weight->elements()) <= 2 * file.tensor(name).bytes.size());
  std::vector<float> wide(static_cast<size_t>(weight->elements()));
  const auto view = [](std::span<const std::byte> bytes) {
    return Storage::mapped(bytes.data(), bytes.size(), nullptr);
  };
  menagerie::widen(*weight->integers(view), wide);
}

}  // namespace

FUZZ(safetensors) {
  const bool whole = !bytes.starts_with('h');
  const auto path = fuzz::scratch("t", whole ? std::string(bytes) : container(bytes.substr(1)));
  const SafeTensors file(path);
  const auto mapping = file.mapping();
  size_t covered = 0;
  for (const auto& [name, entry] : file.tensors()) {
    const auto elements = std::accumulate(entry.shape.begin(), entry.shape.end(), uint64_t{1},
                                          [](uint64_t n, int64_t axis) {
                                            MUST(axis >= 0);
                                            return n * static_cast<uint64_t>(axis);
                                          });
    MUST(elements * static_cast<uint64_t>(element_size(entry.dtype)) == entry.bytes.size());
    MUST(entry.bytes.data() >= mapping.data());
    MUST(entry.bytes.data() + entry.bytes.size() <= mapping.data() + mapping.size());
    widen(file, name);
    MUST(&file.tensor(name) == &entry);
    covered += entry.bytes.size();
  }
  MUST(covered + sizeof(uint64_t) <= mapping.size());
}
