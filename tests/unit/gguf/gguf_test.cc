#include "common/gguf/gguf.h"

#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "common/gguf/gguf_writer.h"
#include "common/gguf/tensor_types.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

// Little-endian bytes of `values`, one after the other.
template <typename... T>
std::string Bytes(T... values) {
  std::string out;
  (out.append(reinterpret_cast<const char*>(&values), sizeof(values)), ...);
  return out;
}

std::string Text(const std::string& text) {
  return Bytes(uint64_t{text.size()}) + text;
}

std::string File(uint64_t tensors, uint64_t keys, const std::string& rest,
                 uint32_t version = 3) {
  return "GGUF" + Bytes(version, tensors, keys) + rest;
}

// One entry of the tensor table.
std::string Entry(const std::string& name, std::vector<uint64_t> sizes,
                  uint32_t type, uint64_t offset) {
  std::string out = Text(name) + Bytes(static_cast<uint32_t>(sizes.size()));
  for (const uint64_t size : sizes) out += Bytes(size);
  return out + Bytes(type, offset);
}

// A file of `entries` alone, followed by `data_bytes` of data.
std::string Table(const std::vector<std::string>& entries, size_t data_bytes) {
  std::string file = File(entries.size(), 0, "");
  for (const std::string& entry : entries) file += entry;
  file += GgufWriter::Padding(file.size());
  return file + std::string(data_bytes, '\7');
}

absl::StatusOr<Gguf> Parse(const std::string& bytes) {
  // A copy of the exact size, so that a sanitizer sees any read past the end.
  // The result must not be used for its bytes afterwards.
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  return ParseGguf(exact, "m.gguf");
}

TEST(ParseGgufTest, KeysAndTensorsComeBackAsWritten) {
  GgufWriter writer;
  writer.Uint32("a.count", 7);
  writer.Float32("a.eps", 0.5f);
  writer.Bool("a.flag", true);
  writer.String("a.name", "llama");
  writer.Strings("a.words", {{"one", "", "three"}});
  writer.Int32s("a.kinds", {{1, -2}});
  writer.Float32s("a.scores", {{1.5f, -3.0f}});
  writer.Tensor("w", FindGgufTensorType("Q8_0")->number, {{2, 32}});
  ASSERT_EQ(writer.tensor_bytes(), 68u);
  writer.Tensor("v", FindGgufTensorType("F32")->number, {{3}});
  std::string file = writer.Header();
  file += std::string(68, 'w') + GgufWriter::Padding(68) + std::string(12, 'v');

  const absl::Span<const uint8_t> bytes(
      reinterpret_cast<const uint8_t*>(file.data()), file.size());
  const auto gguf = ParseGguf(bytes, "m.gguf");
  FORETOKEN_ASSERT_OK(gguf);
  const GgufMetadata& meta = gguf->metadata;
  EXPECT_EQ(meta.RequiredInteger("a.count", 0, 9).value_or(-1), 7);
  EXPECT_EQ(meta.Number("a.eps", 0, 1).value(), 0.5);
  EXPECT_EQ(meta.Bool("a.flag").value(), true);
  EXPECT_EQ(meta.RequiredString("a.name").value_or(""), "llama");
  EXPECT_THAT(*meta.Strings("a.words", 3).value(),
              ElementsAre("one", "", "three"));
  EXPECT_THAT(*meta.Integers("a.kinds", 2).value(), ElementsAre(1, -2));
  EXPECT_THAT(*meta.Numbers("a.scores", 2).value(), ElementsAre(1.5, -3.0));
  ASSERT_EQ(gguf->tensors.size(), 2u);
  EXPECT_EQ(gguf->tensors[0].name, "w");
  EXPECT_THAT(gguf->tensors[0].shape, ElementsAre(2, 32));
  EXPECT_THAT(gguf->tensors[0].data, ::testing::Each('w'));
  EXPECT_EQ(gguf->tensors[0].data.size(), 68u);
  EXPECT_THAT(gguf->tensors[1].shape, ElementsAre(3));
  EXPECT_THAT(gguf->tensors[1].data, ::testing::Each('v'));
}

TEST(ParseGgufTest, MetadataErrorsNameFileKeyAndValue) {
  GgufWriter writer;
  writer.Uint32("a.count", 7);
  writer.String("a.name", "llama");
  writer.Float32("a.nan", std::numeric_limits<float>::quiet_NaN());
  const std::string file = writer.Header();
  const auto gguf =
      ParseGguf(absl::MakeConstSpan(
                    reinterpret_cast<const uint8_t*>(file.data()), file.size()),
                "m.gguf");
  FORETOKEN_ASSERT_OK(gguf);
  const GgufMetadata& meta = gguf->metadata;
  EXPECT_THAT(
      meta.Integer("a.count", 8, 9),
      StatusIs(kInvalid, "m.gguf: a.count is 7, want an integer in 8..9"));
  EXPECT_THAT(meta.Integer("a.name", 0, 9),
              StatusIs(kInvalid,
                       "m.gguf: a.name is \"llama\", want an integer in 0..9"));
  EXPECT_THAT(meta.Bool("a.count"),
              StatusIs(kInvalid, "m.gguf: a.count is 7, want true or false"));
  EXPECT_THAT(
      meta.Strings("a.count", 5),
      StatusIs(kInvalid,
               "m.gguf: a.count is 7, want a list of at most 5 strings"));
  EXPECT_THAT(meta.Number("a.nan", -1e9, 1e9), StatusIs(kInvalid, _));
  EXPECT_THAT(meta.RequiredInteger("b", 1, 2),
              StatusIs(kInvalid, "m.gguf: b is missing, want 1..2"));
  EXPECT_EQ(meta.Integer("b", 1, 2).value(), std::nullopt);
}

TEST(ParseGgufTest, KeysInErrorsArePrintableAndCut) {
  GgufWriter writer;
  writer.Uint32("a\n\x1b[31m", 7);
  const std::string longest(1000, 'k');
  writer.Uint32(longest, 7);
  const std::string file = writer.Header();
  const auto gguf =
      ParseGguf(absl::MakeConstSpan(
                    reinterpret_cast<const uint8_t*>(file.data()), file.size()),
                "m.gguf");
  FORETOKEN_ASSERT_OK(gguf);
  EXPECT_THAT(
      gguf->metadata.Unsupported("a\n\x1b[31m", "no such key"),
      StatusIs(kUnimplemented, "m.gguf: a\\n\\033[31m is 7, want no such key"));
  EXPECT_THAT(gguf->metadata.Bool(longest),
              StatusIs(kInvalid, absl::StrCat("m.gguf: ", std::string(120, 'k'),
                                              "... is 7, want true or false")));
}

// A list of one-byte elements in a file without blocks on the disk: as int64
// they would take half a terabyte.
TEST(ParseGgufTest, AListIsCountedBeforeAnythingIsAllocated) {
  constexpr uint64_t kCount = uint64_t{1} << 36;
  const std::string header =
      File(0, 1,
           Text("k") + Bytes(static_cast<uint32_t>(GgufType::kArray),
                             static_cast<uint32_t>(GgufType::kUint8), kCount));
  TempDir dir;
  const std::string path = dir.Write("sparse.gguf", header);
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(header.size() + kCount)),
            0);
  const auto map = MappedFile::Open(path);
  FORETOKEN_ASSERT_OK(map);
  const auto gguf = ParseGguf(map->bytes(), "m.gguf");
  FORETOKEN_ASSERT_OK(gguf);
  const GgufMetadata& meta = gguf->metadata;
  EXPECT_THAT(meta.Integers("k", 4),
              StatusIs(kInvalid,
                       "m.gguf: k is a list of 68719476736 uint8, want a list "
                       "of at most 4 integers"));
  EXPECT_THAT(meta.Numbers("k", 4),
              StatusIs(kInvalid, HasSubstr("at most 4 finite numbers")));
  EXPECT_THAT(meta.Strings("k", 4),
              StatusIs(kInvalid, HasSubstr("at most 4 strings")));
}

TEST(ParseGgufTest, VersionTwoIsReadAndOthersAreRefused) {
  FORETOKEN_EXPECT_OK(Parse(File(0, 0, "", 2)));
  FORETOKEN_EXPECT_OK(Parse(File(0, 0, "", 3)));
  EXPECT_THAT(Parse(File(0, 0, "", 1)),
              StatusIs(kUnimplemented, "m.gguf: version is 1, want 2 or 3"));
  EXPECT_THAT(Parse(File(0, 0, "", 4)), StatusIs(kInvalid, _));
  EXPECT_THAT(Parse(File(0, 0, "", 0x03000000u)),
              StatusIs(kUnimplemented, HasSubstr("big-endian")));
  EXPECT_THAT(Parse("GGML" + Bytes(uint32_t{3})),
              StatusIs(kInvalid, "m.gguf: does not begin with GGUF"));
  EXPECT_THAT(Parse(""), StatusIs(kInvalid, _));
}

TEST(ParseGgufTest, CountsAndLengthsAreCheckedBeforeTheyAreUsed) {
  constexpr uint64_t kHuge = uint64_t{1} << 63;
  const uint32_t string = static_cast<uint32_t>(GgufType::kString);
  const uint32_t array = static_cast<uint32_t>(GgufType::kArray);
  EXPECT_THAT(Parse(File(kHuge, 0, "")), StatusIs(kInvalid, _));
  EXPECT_THAT(Parse(File(0, kHuge, "")), StatusIs(kInvalid, _));
  EXPECT_THAT(Parse(File(100'000, 0, "")),
              StatusIs(kInvalid, HasSubstr("truncated")));
  // A key, a string, a list and list elements without end.
  EXPECT_THAT(Parse(File(0, 1, Bytes(kHuge))),
              StatusIs(kInvalid, HasSubstr("key of 9223372036854775808")));
  EXPECT_THAT(Parse(File(0, 1, Text("k") + Bytes(string, kHuge) + "abc")),
              StatusIs(kInvalid, AllOf(HasSubstr("m.gguf: k: string of "
                                                 "9223372036854775808 bytes"),
                                       HasSubstr("only 3 follow"))));
  for (const GgufType element : {GgufType::kUint8, GgufType::kBool,
                                 GgufType::kFloat64, GgufType::kString}) {
    for (const uint64_t count : {uint64_t{2}, kHuge, UINT64_MAX}) {
      EXPECT_THAT(
          Parse(File(0, 1,
                     Text("k") +
                         Bytes(array, static_cast<uint32_t>(element), count) +
                         std::string(1, '\0'))),
          StatusIs(kInvalid, HasSubstr("truncated")))
          << GgufTypeName(element) << " " << count;
    }
  }
  EXPECT_THAT(Parse(File(0, 1, Text("k") + Bytes(array, array, uint64_t{1}))),
              StatusIs(kUnimplemented,
                       "m.gguf: k: a list of lists is not "
                       "supported"));
  EXPECT_THAT(Parse(File(0, 1, Text("k") + Bytes(uint32_t{13}))),
              StatusIs(kInvalid, "m.gguf: k: value has type 13, want 0..12"));
  EXPECT_THAT(Parse(File(0, 1, Text("k") + Bytes(uint32_t{7}, uint8_t{2}))),
              StatusIs(kInvalid, "m.gguf: k: bool is 2, want 0 or 1"));
  const std::string key = Text("k") + Bytes(uint32_t{0}, uint8_t{1});
  EXPECT_THAT(Parse(File(0, 2, key + key)),
              StatusIs(kInvalid, "m.gguf: metadata names k twice"));
}

TEST(ParseGgufTest, TensorsLieInTheDataWithoutOverlap) {
  constexpr uint64_t kHuge = uint64_t{1} << 63;
  FORETOKEN_EXPECT_OK(Parse(Table({Entry("a", {8}, 0, 0)}, 32)));
  const auto refused = [](std::vector<std::string> entries,
                          const std::string& message,
                          absl::StatusCode code = kInvalid) {
    EXPECT_THAT(Parse(Table(entries, 64)), StatusIs(code, HasSubstr(message)));
  };
  refused({Entry("a", {17}, 0, 0)},
          "m.gguf: tensor a has 68 bytes at byte 0 of the data, which has "
          "only 64");
  refused({Entry("a", {8}, 0, 64)}, "has 32 bytes at byte 64");
  refused({Entry("a", {8}, 0, kHuge)}, "at byte 9223372036854775808");
  refused({Entry("a", {8}, 0, 8)}, "want a multiple of 32");
  refused({Entry("a", {9}, 0, 0), Entry("b", {2}, 0, 32)},
          "tensor b overlaps tensor a");
  refused({Entry("a", {2}, 0, 0), Entry("b", {2}, 0, 0)}, "overlaps");
  refused({Entry("a", {2}, 0, 0), Entry("a", {2}, 0, 32)},
          "tensor a is there twice");
  refused({Entry("a", {0}, 0, 0)}, "dimension 0 is 0");
  refused({Entry("a", {kHuge}, 0, 0)}, "dimension 0 is 9223372036854775808");
  refused({Entry("a", {1 << 20, uint64_t{1} << 50}, 0, 0)}, "dimension 1");
  refused({Entry("a", {uint64_t{1} << 62}, 0, 0)}, "18446744073709551615");
  refused({Entry("a", {}, 0, 0)}, "has 0 dimensions, want 1..4");
  refused({Entry("a", {1, 1, 1, 1, 1}, 0, 0)}, "has 5 dimensions");
  refused({Entry("a", {33}, 8, 0)},
          "has rows of 33 Q8_0 elements, want a multiple of 32");
  refused({Entry("a", {32}, 77, 0)}, "tensor a: has type 77", kUnimplemented);
  refused({Entry("a", {32}, 4, 0)}, "tensor a: has type 4", kUnimplemented);
}

TEST(ParseGgufTest, AlignmentIsAPowerOfTwo) {
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 21}) {
    GgufWriter writer;
    writer.Uint32("general.alignment", alignment);
    EXPECT_THAT(Parse(writer.Header()),
                StatusIs(kInvalid, HasSubstr("general.alignment is ")))
        << alignment;
  }
  GgufWriter writer;
  writer.Uint32("general.alignment", 64);
  writer.Tensor("a", 0, {{1}});
  std::string file = writer.Header();
  file.resize((file.size() + 63) / 64 * 64 + 4, '\1');
  const absl::Span<const uint8_t> bytes(
      reinterpret_cast<const uint8_t*>(file.data()), file.size());
  const auto gguf = ParseGguf(bytes, "m.gguf");
  FORETOKEN_ASSERT_OK(gguf);
  EXPECT_EQ(gguf->tensors[0].data.data() - bytes.data(),
            static_cast<ptrdiff_t>(file.size() - 4));
}

TEST(ParseGgufTest, NoPrefixAndNoFlippedByteCrashes) {
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  writer.Strings("tokenizer.ggml.tokens", {{"a", "b", "c"}});
  writer.Float32s("x", {{1.0f, 2.0f}});
  writer.Tensor("w", 8, {{2, 32}});
  const std::string file = writer.Header() + std::string(68, '\1');
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_FALSE(Parse(file.substr(0, length)).ok()) << length;
  }
  std::mt19937 random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::string bent = file;
    for (int i = 0; i < 1 + round % 3; ++i) {
      bent[random() % bent.size()] = static_cast<char>(random());
    }
    (void)Parse(bent);
  }
}

}  // namespace
}  // namespace foretoken
