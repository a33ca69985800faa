// A lowered model's shared library and the AOTInductor functions it exports
// (torch/csrc/inductor/aoti_runtime/interface.h of the pinned torch).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/mapped_file.h"
#include "common/tensor.h"

namespace menagerie {

// The properties of one of a container's constants.
struct ConstantInfo {
  std::string name;           // the container's own
  std::string original_name;  // of the PyTorch module's parameter or buffer
  int32_t dtype = 0;
  size_t bytes = 0;
  bool folded = false;  // computed by the library from other constants
};

// Tensors cross the ABI as owned pointers.
using TensorHandle = Tensor*;

class ModelLibrary {
 public:
  // Load that very file, so that its shim symbols bind to this runtime even beside a loaded
  // libtorch. Its code and statics, a few hundred kilobytes, stay until the process ends.
  explicit ModelLibrary(const std::shared_ptr<const OpenFile>& file);
  ModelLibrary(const ModelLibrary&) = delete;
  ModelLibrary& operator=(const ModelLibrary&) = delete;
  ~ModelLibrary();

  // Destroy the container; a second call does nothing.
  void close() noexcept;

  std::vector<ConstantInfo> constants() const;
  size_t input_count() const;
  size_t output_count() const;

  // Set the container's constants by name. The caller owns the handles, which must outlive it.
  void set_constants(const std::vector<std::pair<std::string, TensorHandle>>& constants);
  // Compute the folded constants; call once, before the first run.
  void fold_constants();
  // Run the model. It takes ownership of the inputs; the caller owns the outputs.
  void run(std::vector<TensorHandle>& inputs, std::vector<TensorHandle>& outputs);

 private:
  struct Functions;

  void check(int32_t code, const char* action) const;

  std::string path_;
  std::unique_ptr<Functions> call_;
  void* container_ = nullptr;
};

}  // namespace menagerie
