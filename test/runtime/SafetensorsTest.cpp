// Tests strict reading: every malformed file is an error with a message, never a crash.
#include "zorse/runtime/Safetensors.h"
#include "TemporaryDirectory.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

std::string withHeader(const std::string &header, size_t dataBytes) {
  std::string bytes;
  for (int i = 0; i < 8; ++i)
    bytes += char(uint64_t(header.size()) >> (8 * i));
  return bytes + header + std::string(dataBytes, '\1');
}

class Safetensors : public ::testing::Test {
protected:
  std::string openError(const std::string &bytes) {
    Result<SafetensorsFile> file = SafetensorsFile::open(directory.write("t.safetensors", bytes));
    return file.failed() ? file.message() : "accepted";
  }
  TemporaryDirectory directory;
};

TEST_F(Safetensors, RoundTrips) {
  std::string path = directory.path("x.safetensors");
  float a[] = {1, 2, 3, 4, 5, 6};
  int64_t b = -7;
  ASSERT_FALSE(
      writeSafetensors(
          path, {{"b.bias", StoredType::I64, {}, [&](std::byte *to) { std::memcpy(to, &b, 8); }},
                 {"a \"quoted\"",
                  StoredType::F32,
                  {2, 3},
                  [&](std::byte *to) { std::memcpy(to, a, 24); }},
                 {"empty", StoredType::F32, {0, 4}, [&](std::byte *) {}}})
          .failed());
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_FALSE(file.failed()) << file.message();
  ASSERT_EQ(file->tensors().size(), 3u);
  const SafetensorsEntry &entry = file->tensors().at("a \"quoted\"");
  EXPECT_EQ(entry.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(entry.data, a, 24), 0);
  EXPECT_EQ(file->tensors().at("b.bias").shape, std::vector<int64_t>{});
  EXPECT_EQ(std::memcmp(file->tensors().at("b.bias").data, &b, 8), 0);
}

TEST_F(Safetensors, MetadataIsLetThrough) {
  std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  EXPECT_EQ(openError(withHeader(header, 4)), "accepted");
}

TEST_F(Safetensors, WrongFilesAreNamed) {
  struct {
    std::string bytes, says;
  } const cases[] = {
      {"", "0 bytes"},
      {"1234567", "7 bytes"},
      {std::string(8, '\xff'), "header is said to have"},
      {withHeader("{}", 0).substr(0, 9), "header is said to have"},
      {withHeader("[1]", 0), "not a JSON object"},
      {withHeader("{\"a\":", 0), "not a JSON object"},
      {withHeader(std::string(3000, '['), 0), "not a JSON object"},
      {withHeader(R"({"a":1})", 0), "expects dtype"},
      {withHeader(R"({"a":{"dtype":"F32","shape":[1]}})", 4), "expects dtype"},
      {withHeader(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4),
       "unknown type 'F31'"},
      {withHeader(R"({"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4),
       "unknown type 'f32'"},
      {withHeader(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), "not negative"},
      {withHeader(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4),
       "not negative"},
      {withHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,-4]}})", 4), "not negative"},
      {withHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
       "its shape needs 8"},
      {withHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4),
       "lies at bytes [0, 8) of 4"},
      {withHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), "without holes"},
      {withHeader(
           R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
           6),
       "without holes"},
      {withHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5),
       "1 bytes behind the last tensor"},
      {withHeader(
           R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
           4),
       "is there twice"},
      {withHeader(
           R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}})",
           4),
       "too large"},
      {withHeader(R"({"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,4]}})", 4),
       "too large"},
      {withHeader(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})",
                  4),
       "not negative"},
  };
  for (const auto &c : cases) {
    std::string error = openError(c.bytes);
    EXPECT_NE(error.find(c.says), std::string::npos) << error;
    EXPECT_NE(error.find("t.safetensors"), std::string::npos) << error;
  }
  EXPECT_NE(
      SafetensorsFile::open(directory.path("nowhere")).message().find("nowhere: cannot be read"),
      std::string::npos);
  EXPECT_TRUE(SafetensorsFile::open(directory.path("")).failed());
}

TEST_F(Safetensors, EveryTruncationAndChangedByteIsHandled) {
  std::string good = withHeader(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})",
      16);
  ASSERT_EQ(openError(good), "accepted");
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(openError(good.substr(0, length)), "accepted") << length;
  for (size_t at = 0; at < good.size(); ++at)
    for (char change : {'\xff', '"', '9'}) {
      std::string bad = good;
      bad[at] = change;
      (void)openError(bad); // accepted or not, but no crash
    }
}

TEST(Elements, ConvertBetweenTypes) {
  float f[] = {1.5f, -2.0f, 65504.0f};
  uint16_t h[3];
  double d[3];
  convertElements(f, StoredType::F32, h, StoredType::F16, 3);
  convertElements(h, StoredType::F16, d, StoredType::F64, 3);
  EXPECT_EQ(d[0], 1.5);
  EXPECT_EQ(d[1], -2.0);
  EXPECT_EQ(d[2], 65504.0);
  uint8_t flags[] = {0, 1, 7};
  int64_t wide[3];
  convertElements(flags, StoredType::Bool, wide, StoredType::I64, 3);
  EXPECT_EQ(wide[2], 1);
  int64_t large = (int64_t(1) << 53) + 1;
  int64_t same = 0;
  convertElements(&large, StoredType::I64, &same, StoredType::I64, 1);
  EXPECT_EQ(same, large);
  char unaligned[9];
  convertElements(f, StoredType::F32, unaligned + 1, StoredType::F64, 1);
  double value;
  std::memcpy(&value, unaligned + 1, 8);
  EXPECT_EQ(value, 1.5);
}

TEST(Elements, PermutationsInvert) {
  std::vector<int32_t> x(24), y(24), z(24);
  for (int i = 0; i < 24; ++i)
    x[i] = i;
  permuteElements(x.data(), y.data(), 4, {2, 3, 4}, {2, 0, 1}); // 4x2x3
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 4); // [0, 0, 1] is stored [0, 1, 0]
  EXPECT_EQ(y[6], 1); // [1, 0, 0] is stored [0, 0, 1]
  permuteElements(y.data(), z.data(), 4, {4, 2, 3}, {1, 2, 0});
  EXPECT_EQ(x, z);
}

} // namespace
