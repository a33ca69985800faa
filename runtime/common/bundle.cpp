#include "common/bundle.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <set>
#include <string>

#include "common/backend.h"
#include "common/platform/machine.h"
#include "common/sha256.h"
#include "menagerie.h"

namespace menagerie {
namespace {

constexpr size_t kPage = 16384;  // Apple devices' page size; whole pages on all machines we know

Tensor dense_view(std::shared_ptr<Storage> storage, Dtype dtype, std::span<const int64_t> sizes) {
  const Extents strides = contiguous_strides(sizes);
  return make_view(std::move(storage), dtype, sizes, {strides.data(), sizes.size()}, 0);
}

bool fits_machine(const Requirements& needs) {
  return needs.system == machine::system() && needs.machine == machine::architecture();
}

void check_machine(const Requirements& needs) {
  require(needs.runtime_abi == MENAGERIE_RUNTIME_ABI, "the bundle needs runtime ABI ",
          needs.runtime_abi, ", this runtime has ", MENAGERIE_RUNTIME_ABI);
  require(fits_machine(needs), "the bundle is for ", needs.system, " on ", needs.machine,
          ", this is ", machine::system(), " on ", machine::architecture());
  require(!needs.deployment_target.has_value() || machine::is_at_least(*needs.deployment_target),
          "the bundle needs ", needs.system, " ", needs.deployment_target.value_or(""),
          " or later");
  for (const std::string& instruction : needs.instructions) {
    require(machine::has_instructions(instruction), "the bundle needs processor instructions ",
            instruction, ", which this processor lacks");
  }
}

// Return a constant of `elements` floats as the backend's device sees it.
std::shared_ptr<Storage> filled(int64_t elements,
                                const std::function<void(std::span<float>)>& fill) {
  const auto bytes = static_cast<size_t>(elements) * sizeof(float);
  // A device can address whole pages without a copy.
  const size_t whole = (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  const std::shared_ptr<std::byte> memory(static_cast<std::byte*>(std::aligned_alloc(kPage, whole)),
                                          std::free);
  if (memory == nullptr) throw std::bad_alloc();
  fill({reinterpret_cast<float*>(memory.get()), static_cast<size_t>(elements)});
  const auto device = backend::lend({memory.get(), whole}, memory);
  return device == nullptr ? Storage::constant(memory.get(), bytes, memory)
                           : Storage::constant_on_device(device, 0, bytes, memory);
}

// Return whether this machine, which is not the bundle's platform, runs the program's emulation.
bool is_emulated(const Manifest& manifest, const ProgramSpec& program) {
  return !fits_machine(manifest.needs) && program.files.contains("emulation");
}

void check_requirements(const Manifest& manifest) {
  require(manifest.runtime == backend::kTarget, "the bundle is for target ", manifest.runtime,
          ", this runtime is for ", backend::kTarget);
  for (const ProgramSpec& program : manifest.programs) {
    const bool emulated = is_emulated(manifest, program);
    check_machine(emulated ? *manifest.file(program.files.at("emulation")).needs : manifest.needs);
  }
}

}  // namespace

Bundle::Bundle(std::filesystem::path folder, const Manifest::Verify& verify)
    : folder_(std::move(folder)), manifest_(Manifest::read(folder_, verify)) {
  try {
    check_requirements(manifest_);
  } catch (const Error& error) {
    fail(folder_.string(), ": ", error.what());
  }
  check_folder();
  weights_ = SafeTensors::shared(checked_size(manifest_.files.at("weights")));
  device_weights_ = backend::lend(weights_->mapping(), weights_);
}

bool Bundle::is_left_out(const std::string& path) const {
  if (std::filesystem::exists(std::filesystem::symlink_status(folder_ / path))) return false;
  const auto is_among = [&](const Roles& files, std::initializer_list<const char*> roles) {
    return std::ranges::any_of(roles, [&](const char* role) {
      const auto found = files.find(role);
      return found != files.end() && found->second == path;
    });
  };
  return is_among(manifest_.files, {"accuracy", "held_out"}) ||
         std::ranges::any_of(manifest_.programs, [&](const ProgramSpec& program) {
           return is_among(program.files, {"golden", "refuting"});
         });
}

// Check that the folder holds the listed files of the listed sizes, signatures, and nothing else.
void Bundle::check_folder() const {
  std::set<std::string> listed{"manifest.json", kSignature, kModelSignature};
  for (const auto& [path, entry] : manifest_.listed) {
    if (!is_left_out(path)) checked_size(path);
    listed.insert(path);
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
    if (entry.is_directory() && !entry.is_symlink()) continue;
    const std::string inner = entry.path().lexically_relative(folder_).generic_string();
    require(listed.contains(inner), entry.path().string(),
            ": the manifest does not list this file");
    require(entry.is_regular_file() && !entry.is_symlink(), entry.path().string(),
            ": is not a regular file");
  }
}

std::shared_ptr<const Bundle> Bundle::open(const std::filesystem::path& folder,
                                           const Trust* trust) {
  Manifest::Verify verify;
  if (trust != nullptr) verify = [&](auto document) { trust->require_signed(folder, document); };
  return std::shared_ptr<const Bundle>(new Bundle(folder, verify));
}

Tensor Bundle::constant(const std::string& name, int32_t wanted) const {
  const SafeTensors::Entry& entry = weights_->tensor(name);
  if (wanted == static_cast<int32_t>(Dtype::kFloat32)) {
    if (QuantisedWeight::may_be(entry.dtype)) {
      const QuantisedWeight weight(*weights_, name);
      const auto view = [this](std::span<const std::byte> bytes) { return mapped(bytes); };
      return narrow(name, weight.shape(), [&] { return weight.integers(view); });
    }
    if (entry.dtype == Dtype::kFloat16 || entry.dtype == Dtype::kBFloat16) {
      return narrow(name, entry.shape, [&] {
        const auto elements = static_cast<int64_t>(entry.bytes.size() / sizeof(Float16));
        const int64_t count = entry.shape.empty() ? 1 : std::max<int64_t>(entry.shape[0], 1);
        const int64_t sizes[] = {count, elements / count};
        NarrowRows rows;
        rows.values = dense_view(mapped(entry.bytes), entry.dtype, sizes);
        rows.columns = sizes[1];
        return std::make_shared<const NarrowRows>(std::move(rows));
      });
    }
  }
  return dense_view(mapped(entry.bytes), entry.dtype, entry.shape);
}

std::shared_ptr<Storage> Bundle::mapped(std::span<const std::byte> bytes) const {
  if (device_weights_ == nullptr) return Storage::mapped(bytes.data(), bytes.size(), weights_);
  const auto offset = static_cast<size_t>(bytes.data() - weights_->mapping().data());
  return Storage::constant_on_device(device_weights_, offset, bytes.size(), weights_);
}

std::shared_ptr<Storage> Bundle::kept(const std::string& name, const Storage::Make& make) const {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<Storage>& known = widened_[name];
  if (std::shared_ptr<Storage> storage = known.lock()) return storage;
  const std::shared_ptr<Storage> made = make();
  known = made;
  return made;
}

Tensor Bundle::narrow(const std::string& name, std::span<const int64_t> shape,
                      const std::function<std::shared_ptr<const NarrowRows>()>& stored) const {
  const auto make = [&] {
    const auto rows = stored();
    if (rows->values.dtype == Dtype::kBFloat16 || !rows->row_scales.empty()) coarse_ = true;
    const int64_t elements = rows->values.size[0] * rows->columns;
    const auto floats = [rows, elements] {
      const auto made = filled(elements, [&](std::span<float> to) { widen(*rows, to); });
      release_pages(*rows->values.storage);
      return made;
    };
    const auto bytes = static_cast<size_t>(elements) * sizeof(float);
    return Storage::behind(rows, bytes, device_weights_ != nullptr, floats);
  };
  return dense_view(kept(name, make), Dtype::kFloat32, shape);
}

std::shared_ptr<const OpenFile> Bundle::library(const ProgramSpec& program) const {
  return checked_hash(program.files.at(is_emulated(manifest_, program) ? "emulation" : "library"));
}

std::filesystem::path Bundle::checked_size(const std::string& file) const {
  const FileEntry& entry = manifest_.file(file);
  const std::filesystem::path path = folder_ / file;
  std::error_code error;
  // A link could lead out of the folder, even one in the middle of the path.
  std::filesystem::path step = folder_;
  for (const auto& part : std::filesystem::path(file)) {
    step /= part;
    require(!std::filesystem::is_symlink(step, error), step.string(), ": is a symbolic link");
  }
  const auto size = std::filesystem::file_size(path, error);
  require(!error, path.string(), ": ", error.message(), kDamaged);
  require(static_cast<int64_t>(size) == entry.bytes, path.string(), ": is ", size,
          " bytes long, the manifest says ", entry.bytes, kDamaged);
  return path;
}

std::shared_ptr<const OpenFile> Bundle::checked_hash(const std::string& file) const {
  auto opened = std::make_shared<const OpenFile>(checked_size(file));
  const std::string found = sha256(MappedFile(*opened).bytes());
  const std::string& promised = manifest_.file(file).sha256;
  require(found == promised, opened->path().string(), ": has sha256 ", found,
          ", the manifest says ", promised, kDamaged);
  return opened;
}

}  // namespace menagerie
