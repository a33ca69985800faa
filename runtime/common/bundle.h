// An opened bundle folder: its manifest, and its weights mapped once for all programs.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/manifest.h"
#include "common/mapped_file.h"
#include "common/quantised.h"
#include "common/safetensors.h"
#include "common/tensor.h"
#include "common/trust.h"

namespace menagerie {

class Bundle {
 public:
  // Read the manifest and check that the bundle is for this runtime and that this machine offers
  // what its libraries or their emulations require, before any of it is mapped or loaded. With
  // `trust`, check the manifest's signature before reading anything out of it.
  static std::shared_ptr<const Bundle> open(const std::filesystem::path& folder,
                                            const Trust* trust = nullptr);

  const Manifest& manifest() const { return manifest_; }
  const std::shared_ptr<const SafeTensors>& weights() const { return weights_; }
  // Return a tensor of the weights file as the backend's device sees it: in the mapping; or, if
  // `wanted` is float32's dtype number and a float16, bfloat16 or quantised weight is stored,
  // widened once for all programs when a kernel asks for the floats.
  Tensor constant(const std::string& name, int32_t wanted) const;

  // Return whether products round their operands: a weight is in bfloat16, or in integers that are
  // multiplied by integers.
  bool is_coarse() const { return coarse_.load(std::memory_order_relaxed); }

  // Return the library that this machine loads for a program, with its hash checked: the program's
  // own, or its emulation where the machine is not the bundle's platform.
  std::shared_ptr<const OpenFile> library(const ProgramSpec& program) const;

  // Return whether a file that only a proof reads is absent: a pull may leave it out.
  bool is_left_out(const std::string& path) const;
  // Return the path of a listed file after checking its size.
  std::filesystem::path checked_size(const std::string& file) const;
  // Return the file itself after checking its sha256 too.
  std::shared_ptr<const OpenFile> checked_hash(const std::string& file) const;

 private:
  Bundle(std::filesystem::path folder, const Manifest::Verify& verify);
  void check_folder() const;
  std::shared_ptr<Storage> mapped(std::span<const std::byte> bytes) const;
  // Return the storage of that name; make it if no program has it.
  std::shared_ptr<Storage> kept(const std::string& name, const Storage::Make& make) const;
  // Return a float32 constant whose values are stored in a narrower type.
  Tensor narrow(const std::string& name, std::span<const int64_t> shape,
                const std::function<std::shared_ptr<const NarrowRows>()>& stored) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::shared_ptr<const SafeTensors> weights_;
  std::shared_ptr<DeviceMemory> device_weights_;  // null where the mapping serves
  mutable std::atomic<bool> coarse_ = false;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::weak_ptr<Storage>> widened_;  // by the tensor's name
};

}  // namespace menagerie
