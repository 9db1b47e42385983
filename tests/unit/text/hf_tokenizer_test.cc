#include "common/text/hf_tokenizer.h"

#include <string>

#include "common/base/json.h"
#include "common/text/tokenizer_config.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "a" 0, "b" 1, "ab" 2, "\u2581" 3, "<unk>" 4, "<s>" 5 (special).
Json SmallFile() {
  return Json::parse(R"({
    "added_tokens": [{"id": 5, "content": "<s>", "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581",
                      "prepend_scheme": "never", "split": true},
    "post_processor": null,
    "decoder": {"type": "Metaspace", "replacement": "\u2581",
                "prepend_scheme": "never"},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true,
              "vocab": {"a": 0, "b": 1, "ab": 2, "\u2581": 3, "<unk>": 4},
              "merges": ["a b"]}})");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Make(
    const Json& file, const TokenizerConfig& config = {}) {
  return MakeHfTokenizer(DumpJson(file), config);
}

void ExpectRefused(const char* pointer, const Json& value,
                   const std::string& message) {
  Json file = SmallFile();
  file[Json::json_pointer(pointer)] = value;
  EXPECT_THAT(Make(file),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
      << pointer;
}

TEST(HfTokenizerTest, EncodesAndDecodes) {
  const auto tokenizer = Make(SmallFile());
  FORETOKEN_ASSERT_OK(tokenizer);
  EXPECT_THAT((*tokenizer)->Encode("ab ba<s>xyz a"),
              ElementsAre(2, 3, 1, 0, 5, 4, 3, 0));
  EXPECT_EQ((*tokenizer)->Decode({2, 3, 5, 1}).value(), "ab b");
  EXPECT_EQ((*tokenizer)->vocab_size(), 6);
  EXPECT_TRUE((*tokenizer)->IsSpecial(5));
  EXPECT_EQ((*tokenizer)->TokenBytes(5), "");
}

TEST(HfTokenizerTest, RefusesByFieldAndValue) {
  ExpectRefused("/model/type", "Unigram", "model.type: \"Unigram\"");
  ExpectRefused("/model/dropout", 0.1, "model.dropout: 0.1");
  ExpectRefused("/model/end_of_word_suffix", "</w>",
                "model.end_of_word_suffix: \"</w>\"");
  ExpectRefused("/model/vocab/a", -1, "model.vocab[\"a\"]: -1");
  ExpectRefused("/model/vocab/a", 99999999, "model.vocab[\"a\"]: 99999999");
  ExpectRefused("/model/vocab/a", 1, "which another token has too");
  ExpectRefused("/model/vocab", Json::array(), "model.vocab");
  ExpectRefused("/model/merges/0", "a c", "model.merges[0]: \"a c\"");
  ExpectRefused("/model/merges/0", "a b c", "model.merges[0]: \"a b c\"");
  ExpectRefused("/model/unk_token", "no", "model.unk_token: \"no\"");
  ExpectRefused("/model/byte_fallback", true, "has no <0x00>");
  ExpectRefused("/model/fuse_unk", 1, "model.fuse_unk: 1");
  ExpectRefused("/model", nullptr, "model");
  ExpectRefused("/normalizer", {{"type", "Lowercase"}},
                "normalizer.type: \"Lowercase\"");
  ExpectRefused("/pre_tokenizer", {{"type", "Whitespace"}},
                "pre_tokenizer.type: \"Whitespace\"");
  ExpectRefused("/pre_tokenizer",
                {{"type", "Split"},
                 {"pattern", {{"Regex", "\\w+"}}},
                 {"behavior", "Isolated"}},
                "pre_tokenizer.pattern.Regex: \"\\w+\": \\w is not supported");
  ExpectRefused("/pre_tokenizer",
                {{"type", "Split"},
                 {"pattern", {{"Regex", "a"}}},
                 {"behavior", "Contiguous"}},
                "pre_tokenizer.behavior: \"Contiguous\"");
  ExpectRefused("/decoder", {{"type", "WordPiece"}},
                "decoder.type: \"WordPiece\"");
  ExpectRefused("/decoder", {{"type", "ByteLevel"}}, "or as neither");
  ExpectRefused("/decoder", nullptr, "decoder");
  ExpectRefused("/post_processor", {{"type", "BertProcessing"}},
                "post_processor.type: \"BertProcessing\"");
  ExpectRefused("/added_tokens/0/id", 3, "which another token has too");
  ExpectRefused("/added_tokens/0/content", "", "added_tokens[0].content");
  ExpectRefused("/added_tokens/0/lstrip", "no", "added_tokens[0].lstrip");
}

Json WithTemplate() {
  Json file = SmallFile();
  file["post_processor"] = Json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
               {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}})");
  return file;
}

// (A reader that went back over its elements would not come to an end.)
TEST(HfTokenizerTest, AFileOfManyObjectsIsReadOnce) {
  std::string many = "{}";
  for (int i = 0; i < 400'000; ++i) many += ",{}";
  EXPECT_THAT(MakeHfTokenizer("{\"added_tokens\":[" + many + "]}", {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("not a tokenizer.json")));
  const TempDir dir;
  FORETOKEN_EXPECT_OK(ReadTokenizerConfig(
      dir.Write("tokenizer_config.json", "{\"unknown\":[" + many + "]}")));
}

TEST(HfTokenizerTest, TheTemplateNamesWhatStandsInFrontOfAPrompt) {
  const auto plain = Make(SmallFile());
  FORETOKEN_ASSERT_OK(plain);
  EXPECT_THAT((*plain)->EncodePrompt("a"), ElementsAre(0));
  EXPECT_EQ((*plain)->bos_token(), -1);
  const auto with_template = Make(WithTemplate());
  FORETOKEN_ASSERT_OK(with_template);
  EXPECT_THAT((*with_template)->EncodePrompt("a"), ElementsAre(5, 0));
  EXPECT_THAT((*with_template)->Encode("a"), ElementsAre(0));
  EXPECT_EQ((*with_template)->bos_token(), 5);
}

TEST(HfTokenizerTest, TokenizerConfigOverrulesTheTemplate) {
  TokenizerConfig config;
  config.add_bos_token = false;
  EXPECT_THAT((*Make(WithTemplate(), config))->EncodePrompt("a"),
              ElementsAre(0));
  config.add_bos_token = true;
  config.bos_token = "<s>";
  config.eos_token = "b";
  const auto tokenizer = Make(SmallFile(), config);
  FORETOKEN_ASSERT_OK(tokenizer);
  EXPECT_THAT((*tokenizer)->EncodePrompt("a"), ElementsAre(5, 0));
  EXPECT_EQ((*tokenizer)->eos_token(), 1);
  config.eos_token = "missing";
  EXPECT_THAT(Make(SmallFile(), config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("eos_token: \"missing\"")));
}

TEST(HfTokenizerTest, FingerprintsTellVocabulariesApart) {
  Json renamed = SmallFile();
  renamed["added_tokens"][0]["content"] = "<t>";
  Json ordinary = SmallFile();
  ordinary["added_tokens"][0]["special"] = false;
  Json other_merges = SmallFile();
  other_merges["model"]["merges"] = Json::array();
  const auto base = (*Make(SmallFile()))->fingerprint();
  EXPECT_NE((*Make(renamed))->fingerprint(), base);
  EXPECT_NE((*Make(ordinary))->fingerprint(), base);
  EXPECT_EQ((*Make(other_merges))->fingerprint(), base);
}

}  // namespace
}  // namespace foretoken
