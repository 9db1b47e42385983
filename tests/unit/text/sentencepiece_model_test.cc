#include "common/text/sentencepiece_model.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/text/llama2c_tokenizer.h"
#include "common/text/sentencepiece_tokenizer.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;
using PieceType = SentencePieceModel::PieceType;

SentencePieceModel SmallModel() {
  SentencePieceModel model;
  model.pieces = {
      {"<unk>", 0, PieceType::kUnknown}, {"<s>", 0, PieceType::kControl},
      {"</s>", 0, PieceType::kControl},  {"a", -1, PieceType::kNormal},
      {"b", -2, PieceType::kNormal},     {"ab", -3, PieceType::kNormal}};
  model.remove_extra_whitespaces = false;
  return model;
}

void ExpectRefused(const std::string& bytes, const std::string& message) {
  EXPECT_THAT(ParseSentencePieceModel(bytes),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
}

void ExpectRefused(const SentencePieceModel& model,
                   const std::string& message) {
  ExpectRefused(SerializeSentencePieceModel(model), message);
}

TEST(SentencePieceModelTest, WhatIsWrittenIsRead) {
  const auto model =
      ParseSentencePieceModel(SerializeSentencePieceModel(SmallModel()));
  FORETOKEN_ASSERT_OK(model);
  ASSERT_EQ(model->pieces.size(), 6u);
  EXPECT_EQ(model->pieces[5].text, "ab");
  EXPECT_EQ(model->pieces[5].score, -3);
  EXPECT_EQ(model->pieces[1].type, PieceType::kControl);
  EXPECT_FALSE(model->remove_extra_whitespaces);
}

TEST(SentencePieceModelTest, EveryTruncationIsAnErrorOrASmallerModel) {
  const std::string bytes = SerializeSentencePieceModel(SmallModel());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto model = ParseSentencePieceModel(bytes.substr(0, size));
    if (model.ok()) {
      EXPECT_LE(model->pieces.size(), 6u);
    }
  }
}

TEST(SentencePieceModelTest, RefusesByFieldAndValue) {
  SentencePieceModel model = SmallModel();
  model.pieces[3].type = PieceType::kUnused;
  ExpectRefused(model, "pieces[3]: type: UNUSED is not supported");
  model = SmallModel();
  model.pieces[4].text = "a";
  ExpectRefused(model, "pieces[4].piece: \"a\" is a duplicate");
  model = SmallModel();
  model.pieces[4].text = "\xFF";
  ExpectRefused(model, "pieces[4]: piece: \"\\xff\" is not UTF-8");
  model = SmallModel();
  model.pieces[4].score = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused(model, "pieces[4]: score: not a number");
  model = SmallModel();
  model.pieces[0].type = PieceType::kNormal;
  ExpectRefused(model, "0 have type UNKNOWN");
  model = SmallModel();
  model.byte_fallback = true;
  ExpectRefused(model, "there is no piece <0x00>");
  model = SmallModel();
  model.pieces.push_back({"<0x41>", 0, PieceType::kByte});
  ExpectRefused(model, "byte_fallback: false, but 1 pieces");
  ExpectRefused(std::string(), "pieces: none");
  // The last model_type wins: 1, UNIGRAM.
  ExpectRefused(SerializeSentencePieceModel(SmallModel()) + "\x12\x02\x18\x01",
                "trainer_spec.model_type: 1 (UNIGRAM) is not supported");
  ExpectRefused(
      SerializeSentencePieceModel(SmallModel()) + "\x12\x03\xC0\x01\x01",
      "trainer_spec: treat_whitespace_as_suffix: true is not supported");
  ExpectRefused(SerializeSentencePieceModel(SmallModel()) + "\x2A\x03\x12\x01x",
                "denormalizer_spec: precompiled_charsmap");
}

TEST(SentencePieceModelTest, BrokenRewritingTablesAreRefused) {
  for (const std::string& table :
       {std::string("ab"),
        std::string("\xFF\xFF\xFF\xFF"
                    "abcd"),
        std::string("\x03\0\0\0abcd", 8), std::string("\x04\0\0\0abcdx", 9),
        // One character would become 65 bytes.
        absl::StrCat(absl::string_view("\x04\0\0\0abcd", 8),
                     std::string(65, 'x'), absl::string_view("\0", 1))}) {
    SentencePieceModel model = SmallModel();
    model.precompiled_charsmap = table;
    EXPECT_THAT(
        MakeSentencePieceTokenizer(SerializeSentencePieceModel(model), {}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("precompiled_charsmap")));
  }
}

TEST(SentencePieceModelTest, UnknownCharactersInARowAreOneToken) {
  const auto tokenizer =
      MakeSentencePieceTokenizer(SerializeSentencePieceModel(SmallModel()), {});
  FORETOKEN_ASSERT_OK(tokenizer);
  // The dummy prefix is unknown here, too.
  EXPECT_THAT((*tokenizer)->Encode("xyabz\xFF"),
              ::testing::ElementsAre(0, 5, 0));
}

}  // namespace
}  // namespace foretoken
