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
  // Reads the manifest and checks that the bundle is for this runtime, and that this machine offers
  // what its libraries or their emulations require, before anything of it is mapped or loaded.
  // With a `trust`, the manifest's signature is checked before anything is read out of it.
  static std::shared_ptr<const Bundle> open(const std::filesystem::path& folder,
                                            const Trust* trust = nullptr);

  const Manifest& manifest() const { return manifest_; }
  const std::shared_ptr<const SafeTensors>& weights() const { return weights_; }
  // A tensor of the weights file as the backend's device sees it: in the mapping; or, if float32
  // (the number of the dtype) is wanted and float16, bfloat16 or a quantised weight stored,
  // widened once for all programs when a kernel asks for the floats.
  Tensor constant(const std::string& name, int32_t wanted) const;

  // Whether products round their operands: a weight is in bfloat16, or of integers that meet
  // others.
  bool is_coarse() const { return coarse_.load(std::memory_order_relaxed); }

  // The library that this machine loads for a program, its hash checked: the program's own, or its
  // emulation where the machine is not what the bundle is for.
  std::shared_ptr<const OpenFile> library(const ProgramSpec& program) const;

  // Whether a file that a proof alone reads is not here: a pull may leave it out.
  bool is_left_out(const std::string& path) const;
  // The path of a file the manifest lists, once its size has been found right.
  std::filesystem::path checked_size(const std::string& file) const;
  // The file itself, once its sha256 has been found right too.
  std::shared_ptr<const OpenFile> checked_hash(const std::string& file) const;

 private:
  Bundle(std::filesystem::path folder, const Manifest::Verify& verify);
  void check_folder() const;
  std::shared_ptr<Storage> mapped(std::span<const std::byte> bytes) const;
  // The storage of that name, made if no program has it.
  std::shared_ptr<Storage> kept(const std::string& name, const Storage::Make& make) const;
  // A float32 constant of what is stored narrower.
  Tensor narrow(const std::string& name, std::span<const int64_t> shape,
                const std::function<std::shared_ptr<const NarrowRows>()>& stored) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::shared_ptr<const SafeTensors> weights_;
  std::shared_ptr<DeviceMemory> device_weights_;  // null: the mapping serves
  mutable std::atomic<bool> coarse_ = false;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::weak_ptr<Storage>> widened_;  // by the tensor's name
};

}  // namespace menagerie
