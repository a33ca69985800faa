#include "common/sha256_blocks.h"

namespace menagerie::sha256_blocks {

Add by_instructions() { return nullptr; }

}  // namespace menagerie::sha256_blocks
