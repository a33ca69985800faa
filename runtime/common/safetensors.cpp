#include "common/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <tuple>

#include "common/json.h"

namespace menagerie {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

Dtype dtype_named(const std::string& name, const std::string& place) {
  for (const DtypeInfo& entry : kDtypes) {
    if (entry.safetensors == name) return entry.dtype;
  }
  fail(place, ": dtype ", name, " is not supported");
}

uint64_t natural(const Json& value, const std::string& place) {
  const int64_t number = value.integer(place);
  require(number >= 0, place, ": ", number, " is negative");
  return static_cast<uint64_t>(number);
}

// Return the header's text after checking its length.
std::string_view header_text(std::span<const std::byte> file) {
  uint64_t length = 0;
  require(file.size() >= sizeof length, "is too short for a header");
  std::memcpy(&length, file.data(), sizeof length);
  require(length <= SafeTensors::kMaxHeader, "header of ", length, " bytes exceeds ",
          SafeTensors::kMaxHeader);
  require(length <= file.size() - sizeof length, "header of ", length, " bytes passes the end");
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof length, length);
  require(text.starts_with('{'), "header does not begin with {");
  return text;
}

SafeTensors::Entry read_entry(const std::string& name, const Json& value,
                              std::span<const std::byte> data) {
  SafeTensors::Entry entry;
  require(value.object(name).size() == 3, name, ": has members beside dtype, shape, data_offsets");
  entry.dtype = dtype_named(value.at("dtype", name).string(name), name);
  uint64_t wanted = static_cast<uint64_t>(element_size(entry.dtype));
  for (const Json& axis : value.at("shape", name).array(name)) {
    const uint64_t size = natural(axis, name);
    entry.shape.push_back(static_cast<int64_t>(size));
    require(!__builtin_mul_overflow(wanted, size, &wanted), name, ": shape overflows");
  }
  const Json::Array& offsets = value.at("data_offsets", name).array(name);
  require(offsets.size() == 2, name, ": data_offsets are not two");
  const uint64_t begin = natural(offsets[0], name);
  const uint64_t end = natural(offsets[1], name);
  require(begin <= end && end <= data.size(), name, ": data_offsets [", begin, ", ", end,
          ") pass the end");
  require(end - begin == wanted, name, ": shape needs ", wanted, " bytes, data_offsets give ",
          end - begin);
  entry.bytes = data.subspan(begin, wanted);
  const auto address = reinterpret_cast<uintptr_t>(entry.bytes.data());
  require(address % static_cast<uintptr_t>(element_size(entry.dtype)) == 0, name,
          ": is not aligned to its dtype");
  return entry;
}

}  // namespace

SafeTensors::SafeTensors(const OpenFile& file) : path_(file.path()), file_(file) {
  try {
    read_header();
    check_no_holes();
  } catch (const Error& error) {
    fail(path_.string(), ": ", error.what());
  }
}

std::shared_ptr<const SafeTensors> SafeTensors::shared(const std::filesystem::path& path) {
  using Content = std::tuple<std::pair<uint64_t, uint64_t>, int64_t, size_t>;
  static std::mutex mutex;
  static auto& opened = *new std::map<Content, std::weak_ptr<const SafeTensors>>();
  const OpenFile file(path);
  const std::scoped_lock lock(mutex);
  std::erase_if(opened, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = opened[{file.identity(), file.modified(), file.bytes()}];
  auto found = entry.lock();
  if (found == nullptr) entry = found = std::make_shared<const SafeTensors>(file);
  return found;
}

void SafeTensors::read_header() {
  const std::string_view text = header_text(file_.bytes());
  data_ = file_.bytes().subspan(sizeof(uint64_t) + text.size());
  const Json header = Json::parse(text);
  for (const auto& [name, value] : header.object("header")) {
    if (name != "__metadata__") {
      entries_.emplace(name, read_entry(name, value, data_));
      continue;
    }
    for (const auto& [key, note] : value.object(name)) note.string(key);
  }
}

void SafeTensors::check_no_holes() const {
  std::vector<std::pair<size_t, size_t>> ranges;
  for (const auto& [name, entry] : entries_) {
    const auto begin = static_cast<size_t>(entry.bytes.data() - data_.data());
    ranges.emplace_back(begin, begin + entry.bytes.size());
  }
  std::ranges::sort(ranges);
  size_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    require(begin == covered, begin < covered ? "tensors overlap" : "tensors leave a hole",
            " at byte ", std::min(begin, covered));
    covered = end;
  }
  require(covered == data_.size(), "tensors end at byte ", covered, " of ", data_.size());
}

const SafeTensors::Entry& SafeTensors::tensor(const std::string& name) const {
  const auto found = entries_.find(name);
  require(found != entries_.end(), path_.string(), ": has no tensor \"", name, "\"");
  return found->second;
}

}  // namespace menagerie
