// What comes from outside, well-formed and not: JSON, safetensors, manifests.
#include <ctime>

#include "check.h"
#include "common/json.h"
#include "common/manifest.h"
#include "common/safetensors.h"
#include "files.h"

using namespace menagerie;

namespace {

// The header padded with blanks, so that the data is aligned.
std::string container(std::string header, size_t data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return file + header + std::string(data, '\1');
}

const std::string kHeader =
    R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},"__metadata__":{"k":"v"}})";

std::string tensor(const std::string& name, const std::string& axis) {
  return R"({"name": ")" + name + R"(", "dtype": "float32", "shape": [1, )" + axis + "]}";
}

std::string manifest(const std::string& inputs) {
  const std::string digest = R"(", "bytes": 1, "sha256": ")" + std::string(64, 'a') + "\"}";
  const auto file = [&](const std::string& path) { return R"({"path": ")" + path + digest; };
  return R"({"format": "menagerie-bundle", "version": 2, "model": "m", "target": "cpu", "platform":
         "cpu-linux-x86_64", "runtime": "cpu", "build_key": ")" +
         std::string(64, '0') +
         R"(", "state": "lowered", "requires": {"system": "linux", "machine": "x86_64",
         "instructions": [], "runtime_abi": 1}, "programs": [{"name": "main", "files": {"library": )" +
         file("l.so") + R"(, "golden": )" + file("g") + R"(}, "golden_cases": 1, "inputs": [)" +
         inputs + R"(], "outputs": [)" + tensor("y", "2") +
         R"(], "dimensions": {"t": [1, 8, 1]}, "constants": {}, "symbols": []}],
         "tolerances": {"float32": {"absolute": 0.001, "snr_db": 60.5}},
         "random_weights": 0, "source": "s", "licence": "l", "versions": {},
         "created": "2030-01-31T12:00:00+00:00",
         "files": {"weights": )" +
         file("w") + "}}";
}

// Of the processor's time: others may run in between.
double ticks(const std::function<void()>& body) {
  const std::clock_t start = std::clock();
  body();
  return double(std::clock() - start);
}

// What reading so many members costs, over what reading a quarter of them costs.
double growth(const std::function<std::string(int)>& text,
              const std::function<void(std::string)>& read) {
  const std::string small = text(20'000);
  const std::string large = text(80'000);
  return ticks([&] { read(large); }) / ticks([&] { read(small); });
}

}  // namespace

TEST("JSON is read as RFC 8259 has it") {
  const Json json = Json::parse(R"( {"a" : [1, -2.5e1, true, null, "\u00e9\ud83d\ude00\n"]} )");
  const Json::Array& items = json.at("a", "x").array("a");
  CHECK(items[0].integer("") == 1 && items[1].number("") == -25);
  CHECK(items[3].is_null() && items[4].string("") == "\xc3\xa9\xf0\x9f\x98\x80\n");
  CHECK(Json::parse("9223372036854775807").integer("") == INT64_MAX);
  CHECK(Json::parse("-9223372036854775808").integer("") == INT64_MIN);
  REFUSES("not an integer", Json::parse("1.0").integer("x"));
  REFUSES("lacks \"b\"", json.at("b", "x"));
}

TEST("what is no JSON is refused") {
  for (const char* text : {"",
                           " ",
                           "{",
                           "[1,]",
                           "{\"a\":1,}",
                           "01",
                           "1.",
                           ".5",
                           "+1",
                           "1e",
                           "nul",
                           "truex",
                           "[1 2]",
                           "{\"a\" 1}",
                           "'a'",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\t\"",
                           "1 2",
                           "NaN",
                           "Infinity",
                           "/**/1",
                           "\xef\xbb\xbf{}",
                           "\"\xff\"",
                           "\"\xc0\x80\"",
                           "\"\xed\xa0\x80\"",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"\xf4\x90\x80\x80\"",
                           "9223372036854775808",
                           "-9223372036854775809",
                           "18446744073709551616",
                           "1e999"}) {
    REFUSES("not JSON", Json::parse(text));
  }
  REFUSES("at byte 6", Json::parse("[1, 2 3]"));
  REFUSES("at byte 2: a NUL", Json::parse(std::string("{}\0", 3)));
  REFUSES("duplicate key", Json::parse(R"({"a": 1, "b": {"a": 2}, "a": 3})"));
  REFUSES("nested too deeply", Json::parse(std::string(1'000'000, '[')));
  CHECK(check::passes([] { Json::parse(std::string(31, '[') + std::string(31, ']')); }));
}

TEST("reading many members takes time in proportion") {
  const auto members = [](int count) {
    std::string text = "{";
    for (int i = 0; i < count; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
    return text + "}";
  };
  CHECK(growth(members, [](const std::string& text) { Json::parse(text); }) < 10);
}

TEST("safetensors are read in place") {
  const check::Folder folder;
  const SafeTensors file(folder.write("t", container(kHeader, 26)));
  CHECK(file.tensors().size() == 2);
  CHECK(file.tensor("a").shape == std::vector<int64_t>({2, 3}));
  CHECK(file.tensor("a").bytes.size() == 24 && file.tensor("b").dtype == Dtype::kBFloat16);
  REFUSES("has no tensor \"c\"", file.tensor("c"));
}

TEST("no cut of safetensors is taken") {
  const check::Folder folder;
  const std::string whole = container(kHeader, 26);
  for (size_t length = 0; length < whole.size(); ++length) {
    CHECK(!check::passes([&] { SafeTensors(folder.write("t", whole.substr(0, length))); }));
  }
}

TEST("a manifest is read") {
  const check::Folder folder;
  folder.write("manifest.json", manifest(tensor("x", "\"t\"")));
  const Manifest read = Manifest::read(folder.path());
  CHECK(read.program("main").inputs[0].shape[1].highest == 8);
}

TEST("reading many inputs takes time in proportion") {
  const check::Folder folder;
  const auto inputs = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += (i ? "," : "") + tensor("x" + std::to_string(i), "2");
    return manifest(text);
  };
  CHECK(growth(inputs, [&](const std::string& text) {
          folder.write("manifest.json", text);
          CHECK(Manifest::read(folder.path()).program("main").inputs.size() >= 20'000);
        }) < 10);
}
