#include "common/infer/safetensors.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::string File(const std::string& header, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) {
    file.push_back(static_cast<char>(uint64_t{header.size()} >> (8 * i)));
  }
  return file + header + std::string(data_bytes, '\x01');
}

// Parses a copy of exactly that size, so that a sanitizer sees any overrun.
absl::StatusOr<std::vector<SafetensorsTensor>> Parse(const std::string& file) {
  const std::vector<uint8_t> bytes(file.begin(), file.end());
  auto tensors = ParseSafetensors(bytes, "m.safetensors");
  // The spans die with `bytes`.
  if (tensors.ok()) {
    for (SafetensorsTensor& tensor : *tensors) {
      for (const uint8_t byte : tensor.data) {
        if (byte != 1) return absl::InternalError("a byte of another place");
      }
      tensor.data = {};
    }
  }
  return tensors;
}

TEST(SafetensorsTest, ReadsTensorsInTheOrderOfTheirData) {
  const auto tensors = Parse(File(R"({"b": {"dtype": "F32", "shape": [2, 3],)"
                                  R"( "data_offsets": [4, 28]},)"
                                  R"("__metadata__": {"format": "pt"},)"
                                  R"( "a": {"dtype": "BF16", "shape": [2],)"
                                  R"( "data_offsets": [0, 4]},)"
                                  R"( "s": {"dtype": "I64", "shape": [],)"
                                  R"( "data_offsets": [28, 36]}}   )",
                                  36));
  FORETOKEN_ASSERT_OK(tensors);
  ASSERT_THAT(*tensors, SizeIs(3));
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].dtype, "BF16");
  EXPECT_THAT((*tensors)[1].shape, ElementsAre(2, 3));
  EXPECT_THAT((*tensors)[2].shape, IsEmpty());
}

TEST(SafetensorsTest, WritesWhatItReads) {
  const std::vector<uint8_t> a = {1, 2, 3, 4};
  const std::vector<uint8_t> b = {5, 6, 7, 8, 9, 10, 11, 12};
  const std::string file =
      SerializeSafetensors({{"x.a", WeightType::kFloat16, {1, 2}, a},
                            {"b", WeightType::kFloat32, {2}, b}});
  const std::vector<uint8_t> bytes(file.begin(), file.end());
  const auto tensors = ParseSafetensors(bytes, "f");
  FORETOKEN_ASSERT_OK(tensors);
  ASSERT_THAT(*tensors, SizeIs(2));
  EXPECT_EQ((*tensors)[0].name, "x.a");
  EXPECT_EQ((*tensors)[0].dtype, "F16");
  EXPECT_THAT((*tensors)[0].shape, ElementsAre(1, 2));
  EXPECT_EQ((*tensors)[0].data, absl::MakeConstSpan(a));
  EXPECT_EQ((*tensors)[1].data, absl::MakeConstSpan(b));
  EXPECT_EQ(((*tensors)[0].data.data() - bytes.data()) % 8, 0);
}

TEST(SafetensorsTest, AnEmptyTensorAndAnEmptyFileAreFine) {
  FORETOKEN_EXPECT_OK(Parse(File("{}", 0)));
  FORETOKEN_EXPECT_OK(Parse(File(
      R"({"a": {"dtype": "F32", "shape": [0, 4], "data_offsets": [0, 0]}})",
      0)));
}

struct BadHeader {
  const char* header;
  size_t data_bytes;
  const char* message;
};

TEST(SafetensorsTest, RefusesByFileTensorFoundAndWanted) {
  const BadHeader kBad[] = {
      {"[]", 0, "m.safetensors: header does not begin with '{'"},
      {R"({"a": 3})", 0, "m.safetensors: tensor a: not a JSON object"},
      {R"({"": {}})", 0, "m.safetensors: tensor name of 0 bytes, want 1..512"},
      {R"({"a": {"shape": [1], "data_offsets": [0, 4]}})", 4,
       "m.safetensors: tensor a: dtype missing or not a string"},
      {R"({"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}})", 4,
       "m.safetensors: tensor a: unknown dtype F31"},
      {R"({"a": {"dtype": "F32", "data_offsets": [0, 4]}})", 4,
       "m.safetensors: tensor a: shape missing or not a list"},
      {R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 4,
       "m.safetensors: tensor a: shape [-1], want dimensions whose product "
       "fits 64 bits"},
      {R"({"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}})", 4,
       "m.safetensors: tensor a: shape [1.0], want dimensions whose product "
       "fits 64 bits"},
      {R"({"a": {"dtype": "F32", "shape": [4294967296, 4294967296],
           "data_offsets": [0, 0]}})",
       0,
       "m.safetensors: tensor a: shape [4294967296,4294967296], want "
       "dimensions whose product fits 64 bits"},
      {R"({"a": {"dtype": "F32", "shape": [1,1,1,1,1,1,1,1,1],
           "data_offsets": [0, 4]}})",
       4, "m.safetensors: tensor a: shape has 9 dimensions, want at most 8"},
      {R"({"a": {"dtype": "F32", "shape": [1]}})", 4,
       "m.safetensors: tensor a: data_offsets missing or not a list of two "
       "unsigned integers"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, -4]}})", 4,
       "m.safetensors: tensor a: data_offsets missing or not a list of two "
       "unsigned integers"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", 4,
       "m.safetensors: tensor a: data_offsets [0, 4], want 8 bytes for F32 "
       "[2]"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})", 4,
       "m.safetensors: tensor a: data_offsets [4, 0], want 4 bytes for F32 "
       "[1]"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4],
           "zip": 1}})",
       4, "m.safetensors: tensor a: unknown field zip"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})", 8,
       "m.safetensors: tensor a begins at byte 4 of the data, want 0 (there is "
       "a gap before it)"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
           "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
       8,
       "m.safetensors: tensor b begins at byte 4 of the data, want 8 (it "
       "overlaps the one before)"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 7,
       "m.safetensors: tensor a ends at byte 8 of the data, but the file holds "
       "7: truncated or corrupt"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 9,
       "m.safetensors: the tensors end at byte 8 of the data, but the file "
       "holds 9"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
           "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
       4, "m.safetensors: header: names a twice"},
      {R"({"a": {"dtype": "F32", "shape": [1], "shape": [1],
           "data_offsets": [0, 4]}})",
       4, "m.safetensors: header: names shape twice"},
      {R"({"a": [[[[[[[[[[1]]]]]]]]]]})", 4,
       "m.safetensors: header: JSON nested deeper than 8 levels"},
  };
  for (const BadHeader& bad : kBad) {
    EXPECT_THAT(Parse(File(bad.header, bad.data_bytes)),
                StatusIs(kInvalid, bad.message))
        << bad.header;
  }
}

TEST(SafetensorsTest, RefusesBadHeaderLengths) {
  EXPECT_THAT(Parse(""),
              StatusIs(kInvalid,
                       "m.safetensors: is 0 bytes long, want at least the 8 of "
                       "a header length"));
  EXPECT_THAT(Parse(std::string(8, '\xff')),
              StatusIs(kInvalid,
                       "m.safetensors: header length is 18446744073709551615, "
                       "want at most 16777216"));
  std::string file = File("{}", 0);
  file[0] = 3;
  EXPECT_THAT(Parse(file),
              StatusIs(kInvalid,
                       "m.safetensors: header length is 3, but only 2 bytes "
                       "follow"));
  EXPECT_THAT(
      Parse(File("{\"a\": ", 0)),
      StatusIs(kInvalid, StartsWith("m.safetensors: header: bad JSON: ")));
}

// (A reader that went back over its members would not come to an end.)
TEST(SafetensorsTest, AHeaderOfManyTensorsIsReadOnce) {
  std::string header = "{\"k\":{}";
  for (int i = 0; i < 400'000; ++i) absl::StrAppend(&header, ",\"", i, "\":{}");
  EXPECT_THAT(
      Parse(File(header + "}", 0)),
      StatusIs(kInvalid, HasSubstr("has 400001 entries, want at most")));
}

std::string WholeFile() {
  const std::vector<uint8_t> ones(48, 1);
  const absl::Span<const uint8_t> data(ones);
  return SerializeSafetensors(
      {{"first", WeightType::kFloat32, {2, 3}, data.subspan(0, 24)},
       {"second", WeightType::kBFloat16, {8}, data.subspan(0, 16)},
       {"third", WeightType::kFloat16, {1, 1, 4}, data.subspan(0, 8)}});
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string whole = WholeFile();
  FORETOKEN_ASSERT_OK(Parse(whole));
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(Parse(whole.substr(0, length)),
                StatusIs(kInvalid, StartsWith("m.safetensors: ")))
        << length;
  }
  EXPECT_THAT(Parse(whole + "x"), StatusIs(kInvalid, HasSubstr("file holds")));
}

TEST(SafetensorsTest, NoCorruptByteOfTheHeaderCrashesOrLeavesTheFile) {
  const std::string whole = WholeFile();
  const size_t header_end = whole.size() - 48;
  for (size_t at = 0; at < header_end; ++at) {
    for (const char byte : {'\0', '"', '9', '{', '\xff'}) {
      std::string bent = whole;
      bent[at] = byte;
      const auto tensors = Parse(bent);
      if (!tensors.ok()) {
        EXPECT_THAT(tensors, StatusIs(kInvalid, StartsWith("m.safetensors: ")));
      }
    }
  }
}

}  // namespace
}  // namespace foretoken
