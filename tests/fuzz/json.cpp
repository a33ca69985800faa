// JSON of manifests and safetensors headers.
#include "common/json.h"

#include "target.h"

using menagerie::Json;

namespace {

// Walks all of it; the depth is the parser's promise.
void walk(const Json& value, size_t depth) {
  MUST(depth <= Json::kMaxDepth);
  if (value.is_null() || value.is_string()) return;
  if (fuzz::takes([&](auto) { value.array(""); }, "")) {
    for (const Json& item : value.array("")) walk(item, depth + 1);
  } else if (fuzz::takes([&](auto) { value.object(""); }, "")) {
    for (const auto& [key, item] : value.object("")) {
      MUST(value.find(key, "") == &item);  // no key comes twice
      walk(item, depth + 1);
    }
  }
}

}  // namespace

FUZZ(json) { walk(Json::parse(bytes), 0); }
