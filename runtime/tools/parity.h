// The distance of an output from the golden one, as the validation measures it.
#pragma once

#include <cstdint>
#include <optional>

#include "common/manifest.h"
#include "common/safetensors.h"
#include "menagerie.h"

namespace menagerie::tools {

struct Parity {
  double max_abs = 0;
  double snr_db = 0;  // infinite where the bits are equal
  bool passed = false;
};

// Compare an output with the golden one. Without a tolerance every bit must be equal.
Parity compare(const menagerie_tensor& output, const SafeTensors::Entry& golden,
               const std::optional<Tolerance>& tolerance);

}  // namespace menagerie::tools
