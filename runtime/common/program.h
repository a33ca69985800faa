// A loaded program: its library, with constants, memory and prepared kernels of its own. Two
// programs share nothing that either may change.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "common/bundle.h"
#include "common/context.h"
#include "common/model_library.h"

namespace menagerie {

class Program {
 public:
  Program(std::shared_ptr<const Bundle> bundle, const std::string& name, int32_t threads);

  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  const ProgramSpec& spec() const { return spec_; }
  // Run the program. The inputs' values are read during the call only; fail unless dtypes and
  // shapes match spec(). The outputs stay valid until the next run.
  std::span<const Tensor> run(std::span<const Tensor> inputs);
  // Restore the initial values of the constants that runs change.
  void reset();
  void set_threads(int32_t threads);
  // Turn the timing of each kernel on or off, and discard the times so far.
  void set_profiling(bool on);
  const Profile* profile() { return context_.profile(); }
  uint64_t kernel_calls() const { return context_.kernel_calls(); }

 private:
  // A constant that runs change, and its initial values.
  struct Kept {
    Tensor first, own;
  };

  void load_constants();
  // Return the tensor itself or, for a constant that runs change, this program's own copy.
  Tensor own_if_changed(const std::string& name, Tensor constant);
  // Return the thread count where the caller left it open: all, or one for a run that reads little.
  int32_t threads_for(std::span<const Tensor> inputs) const;
  void check_inputs(std::span<const Tensor> inputs) const;
  // Run the library, which takes over the inputs; the host may read the results.
  Tensors compute(std::vector<TensorHandle>& inputs);

  std::shared_ptr<const Bundle> bundle_;
  const ProgramSpec& spec_;
  mutable std::mutex mutex_;
  Context context_;
  Tensors constants_;  // before library_, which points to them
  std::vector<Kept> state_;
  int32_t most_threads_;  // where the caller left the number open, else 0
  size_t weights_bytes_ = 0;
  bool state_lost_ = false;  // a failed run has left the state undefined
  ModelLibrary library_;
  std::vector<Tensor> outputs_;
};

}  // namespace menagerie
