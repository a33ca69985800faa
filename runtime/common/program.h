// A loaded program: its library with constants, memory and prepared kernels of its own. Two
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
  // The input's values are read during the call only. Fails unless dtypes and shapes are as spec()
  // says. The outputs stay valid until the next run.
  std::span<const Tensor> run(std::span<const Tensor> inputs);
  // Gives the constants that runs change the values that they had at first.
  void reset();
  void set_threads(int32_t threads);
  // From now on the time of each kernel is noted, or no more; what was noted is forgotten.
  void set_profiling(bool on);
  const Profile* profile() { return context_.profile(); }
  uint64_t kernel_calls() const { return context_.kernel_calls(); }

 private:
  // A constant that runs change, and where its first values lie.
  struct Kept {
    Tensor first, own;
  };

  void load_constants();
  // The tensor itself; or, of a constant that runs change, a copy that is this program's alone.
  Tensor own_if_changed(const std::string& name, Tensor constant);
  // Where the caller left the number open: all threads, or one for a run that reads little.
  int32_t threads_for(std::span<const Tensor> inputs) const;
  void check_inputs(std::span<const Tensor> inputs) const;
  // Runs the library, which takes the inputs over; the results' values are there for the host.
  Tensors compute(std::vector<TensorHandle>& inputs);

  std::shared_ptr<const Bundle> bundle_;
  const ProgramSpec& spec_;
  mutable std::mutex mutex_;
  Context context_;
  Tensors constants_;  // before library_, which points to them
  std::vector<Kept> state_;
  int32_t most_threads_;  // where the caller left the number open, else 0
  size_t weights_bytes_ = 0;
  bool state_lost_ = false;  // a run that failed has left it as it happened to be
  ModelLibrary library_;
  std::vector<Tensor> outputs_;
};

}  // namespace menagerie
