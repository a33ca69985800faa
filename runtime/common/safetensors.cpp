#include "common/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

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
  require(number >= 0, place, " is negative");
  return static_cast<uint64_t>(number);
}

}  // namespace

std::shared_ptr<const SafeTensors> SafeTensors::open(const std::filesystem::path& path) {
  std::shared_ptr<SafeTensors> file(new SafeTensors(path));
  try {
    file->read_header();
    file->check_no_holes();
  } catch (const Error& error) {
    fail(path.string(), ": ", error.what());
  }
  file->self_ = file;
  return file;
}

void SafeTensors::read_header() {
  const auto bytes = file_.bytes();
  uint64_t length = 0;
  require(bytes.size() >= sizeof length, "is too short for a header");
  std::memcpy(&length, bytes.data(), sizeof length);
  require(length <= kMaxHeader, "header of ", length, " bytes exceeds ", kMaxHeader);
  require(length <= bytes.size() - sizeof length, "header of ", length, " bytes passes the end");
  data_start_ = sizeof length + length;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof length, length);
  require(text.starts_with('{'), "header does not begin with {");

  const Json header = Json::parse(text);
  for (const auto& [name, value] : header.object("header")) {
    if (name == "__metadata__") {
      for (const auto& [key, note] : value.object(name)) note.string(key);
      continue;
    }
    Entry entry{dtype_named(value.at("dtype", name).string(name), name), {}, 0, 0};
    uint64_t wanted = static_cast<uint64_t>(element_size(entry.dtype));
    for (const Json& axis : value.at("shape", name).array(name)) {
      const uint64_t size = natural(axis, name);
      entry.shape.push_back(static_cast<int64_t>(size));
      require(!__builtin_mul_overflow(wanted, size, &wanted), name, ": shape overflows");
    }
    const Json::Array& offsets = value.at("data_offsets", name).array(name);
    require(offsets.size() == 2, name, ": data_offsets are not two");
    require(value.object(name).size() == 3, name, ": has members beside dtype, shape, data_offsets");
    entry.begin = natural(offsets[0], name);
    entry.end = natural(offsets[1], name);
    require(entry.begin <= entry.end && entry.end - entry.begin == wanted, name, ": shape needs ",
            wanted, " bytes, data_offsets give [", entry.begin, ", ", entry.end, ")");
    require((data_start_ + entry.begin) % static_cast<uint64_t>(element_size(entry.dtype)) == 0,
            name, ": is not aligned to its dtype");
    entries_.emplace(name, std::move(entry));
  }
}

void SafeTensors::check_no_holes() const {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [name, entry] : entries_) ranges.emplace_back(entry.begin, entry.end);
  std::ranges::sort(ranges);
  uint64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    require(begin == covered, begin < covered ? "tensors overlap" : "tensors leave a hole",
            " at byte ", std::min(begin, covered));
    covered = end;
  }
  require(covered == file_.bytes().size() - data_start_, "tensors end at byte ", covered, " of ",
          file_.bytes().size() - data_start_);
}

Tensor SafeTensors::tensor(const std::string& name) const {
  const auto found = entries_.find(name);
  require(found != entries_.end(), path_.string(), ": has no tensor \"", name, "\"");
  const Entry& entry = found->second;
  const std::byte* data = file_.bytes().data() + data_start_ + entry.begin;
  auto storage = Storage::constant(data, entry.end - entry.begin, self_.lock());
  const Extents strides = contiguous_strides(entry.shape);
  return make_view(std::move(storage), entry.dtype, entry.shape,
                   {strides.data(), entry.shape.size()}, 0);
}

std::vector<std::string> SafeTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

}  // namespace menagerie
