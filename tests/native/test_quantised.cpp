// Weights of integers with scales, by arithmetic; what breaks the format is refused (FORMAT.md, 8).
#include <vector>

#include "check.h"
#include "common/quantised.h"
#include "files.h"

using namespace menagerie;

namespace {

// A safetensors file of a header and bytes.
std::string container(std::string header, std::string_view data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size() & 0xFF);
  file[1] = static_cast<char>(header.size() >> 8);
  return file + header + std::string(data);
}

// Two rows of three numbers, -7, 7, 1 and 0, -1, 2, two in a byte, and their scales 1 and 2.
std::string two_packed_rows() {
  return container(R"({"w.shape":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                   R"("w.scales":{"dtype":"BF16","shape":[2,1],"data_offsets":[16,20]},)"
                   R"("w":{"dtype":"U8","shape":[2,2],"data_offsets":[20,24]}})",
                   std::string("\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0"
                               "\x80\x3f\x00\x40"
                               "\xf1\x09\x78\x0a",
                               24));
}

// A part of the file, as the host sees it.
std::shared_ptr<Storage> part(std::span<const std::byte> bytes) {
  return Storage::mapped(bytes.data(), bytes.size(), nullptr);
}

std::vector<float> widened(const SafeTensors& file) {
  const QuantisedWeight weight(file, "w");
  std::vector<float> wide(static_cast<size_t>(weight.elements()));
  widen(*weight.integers(part), wide);
  return wide;
}

}  // namespace

TEST("eight bits are taken times the scale of their group") {
  const check::Folder folder;
  // (2, 4) in groups of two; bfloat16 has the upper half of a float: 1, 2, 0.5 and -1.
  const SafeTensors file(folder.write(
      "t", container(R"({"w":{"dtype":"I8","shape":[2,2,2],"data_offsets":[8,16]},)"
                     R"("w.scales":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}})",
                     std::string("\x80\x3f\x00\x40\x00\x3f\x80\xbf"
                                 "\x01\xff\x7f\x81\x03\x00\x02\xfe",
                                 16))));
  CHECK(QuantisedWeight(file, "w").shape() == std::vector<int64_t>({2, 2, 2}));
  CHECK(widened(file) == std::vector<float>({1, -1, 254, -254, 1.5, 0, -2, 2}));
}

TEST("four bits are packed two in a byte, and a row of odd length ends in half of one") {
  const check::Folder folder;
  const SafeTensors file(folder.write("t", two_packed_rows()));
  CHECK(QuantisedWeight(file, "w").shape() == std::vector<int64_t>({2, 3}));
  CHECK(widened(file) == std::vector<float>({-7, 7, 1, 0, -2, 4}));
  const auto rows = QuantisedWeight(file, "w").integers(part);
  CHECK(rows->values.dtype == Dtype::kUInt8 && rows->values.data<uint8_t>()[3] == 0x0a);
  CHECK(rows->values.size[1] == 2 && rows->columns == 3 && rows->row_scales.empty());
  CHECK(rows->scales.size[0] == 2 && rows->scales.data<uint16_t>()[1] == 0x4000);
}

TEST("parts of rows are widened as the whole is, from any column on") {
  const check::Folder folder;
  const SafeTensors file(folder.write("t", two_packed_rows()));
  const auto rows = QuantisedWeight(file, "w").integers(part);
  float numbers[2];
  widen(*rows, 1, 1, 2, numbers);
  CHECK(numbers[0] == -2 && numbers[1] == 4);
  widen(*rows, 0, 2, 1, numbers);
  CHECK(numbers[0] == 1 && numbers[1] == 4);
}

TEST("halves are widened exactly, eight at once and those that are left") {
  const auto check = [](auto half, Dtype dtype) {
    std::vector<decltype(half)> stored(22);
    for (size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<float>(i) / 4 - 2;
    const int64_t sizes[] = {2, 11}, strides[] = {11, 1};
    NarrowRows rows;
    rows.values = make_view(Storage::borrow(stored.data(), stored.size() * sizeof half), dtype,
                            sizes, strides, 0);
    rows.columns = 11;
    std::vector<float> wide(10);
    widen(rows, 1, 1, 10, wide.data());
    for (size_t i = 0; i < wide.size(); ++i) CHECK(wide[i] == static_cast<float>(i) / 4 + 1);
  };
  check(Float16{}, Dtype::kFloat16);
  check(BFloat16{}, Dtype::kBFloat16);
}

TEST("with one scale a row, and only then, products may round their other operand") {
  const check::Folder folder;
  const auto file = [&](const std::string& sizes) {
    return SafeTensors(
        folder.write("t", container(R"({"w":{"dtype":"I8","shape":[2,2],"data_offsets":[4,8]},)"
                                    R"("w.scales":{"dtype":"BF16","shape":)" +
                                        sizes + R"(,"data_offsets":[0,4]}})",
                                    std::string("\x80\x3f\x00\x40\x01\xff\x7f\x81", 8))));
  };
  const SafeTensors one = file("[2]");
  const QuantisedWeight weight(one, "w");
  const auto rows = weight.integers(part);
  CHECK(rows->row_scales == std::vector<float>({1, 2}));
  CHECK(rows->sums == std::vector<float>({0, 0}));
  CHECK(rows->values.size[0] == 2 && rows->values.size[1] == 2);
  const SafeTensors grouped = file("[2,1]");
  CHECK(QuantisedWeight(grouped, "w").integers(part)->row_scales.empty());
}

TEST("without a scale for each group there is no weight") {
  const check::Folder folder;
  const auto of = [&](const std::string& scales, size_t bytes) {
    const std::string end = std::to_string(bytes);
    const std::string header = R"({"w.scales":{"dtype":)" + scales + R"(,"data_offsets":[0,)" +
                               end + R"(]},"w":{"dtype":"I8","shape":[2,4],"data_offsets":[)" +
                               end + "," + std::to_string(bytes + 8) + "]}}";
    const SafeTensors file(folder.write("t", container(header, std::string(bytes + 8, '\1'))));
    return widened(file).size();
  };
  CHECK(of(R"("BF16","shape":[2,4])", 16) == 8);
  REFUSES("do not divide its rows", of(R"("BF16","shape":[2,3])", 12));
  REFUSES("do not divide its rows", of(R"("BF16","shape":[2,0])", 0));
  REFUSES("do not divide its rows", of(R"("BF16","shape":[4,2])", 16));
  CHECK(of(R"("BF16","shape":[2])", 4) == 8);
  REFUSES("do not divide its rows", of(R"("BF16","shape":[3])", 6));
  REFUSES("do not divide its rows", of(R"("BF16","shape":[])", 2));
  REFUSES("are not bfloat16", of(R"("F32","shape":[2,2])", 16));
}

TEST("the range of what a weight meets is two ends with zero between, with a scale a row") {
  const check::Folder folder;
  const auto rounding = [&](std::string_view ends, const std::string& scales = "[2]",
                            const std::string& dtype = "F32") {
    const SafeTensors file(folder.write(
        "t", container(R"({"w.scales":{"dtype":"BF16","shape":)" + scales +
                           R"(,"data_offsets":[0,4]},"w":{"dtype":"I8","shape":[2,2],)"
                           R"("data_offsets":[4,8]},"w.operand":{"dtype":")" +
                           dtype + R"(","shape":[2],"data_offsets":[8,16]}})",
                       std::string("\x80\x3f\x00\x40\x01\x02\x03\x04", 8) + std::string(ends))));
    return QuantisedWeight(file, "w").integers(part)->operand;
  };
  const std::string_view both("\x00\x00\x80\xbf\x00\x00\x80\x40", 8);  // -1 and 4
  CHECK(rounding(both)->scale == 5.0F / 255 && rounding(both)->zero == 51);
  const std::string_view positive("\x00\x00\x80\x3f\x00\x00\x80\x40", 8);  // 1 and 4
  REFUSES("does not hold zero", rounding(positive));
  const std::string_view infinite("\x00\x00\x80\xff\x00\x00\x80\x40", 8);
  REFUSES("does not hold zero", rounding(infinite));
  const std::string_view odd("\x00\x00\xc0\x7f\x00\x00\x80\x40", 8);  // NaN and 4
  REFUSES("does not hold zero", rounding(odd));
  REFUSES("must be two float32", rounding(both, "[2,1]"));
  REFUSES("must be two float32", rounding(both, "[2]", "I32"));
}
