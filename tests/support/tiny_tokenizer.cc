#include "tests/support/tiny_tokenizer.h"

#include <vector>

#include "common/base/json.h"

namespace foretoken::testing {

std::string TinyTokenizerJson() {
  Json vocab = {{"<s>", 0}, {"</s>", 1}};
  for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = 2 + (c - 'a');
  vocab["\u0120"] = 28;  // byte-level space
  vocab["\u00c3"] = 29;  // byte C3
  vocab["\u00a9"] = 30;  // byte A9
  std::vector<std::string> pairs = {"th", "he", "in", "er", "an"};
  for (char c = 'a'; pairs.size() + 31 < kTinyVocabulary; ++c) {
    pairs.push_back(std::string("x") + c);
  }
  Json merges = Json::array();
  for (size_t i = 0; i < pairs.size(); ++i) {
    vocab[pairs[i]] = 31 + i;
    merges.push_back(std::string(1, pairs[i][0]) + " " + pairs[i][1]);
  }
  Json added = Json::array();
  for (const auto& [id, content] :
       {std::pair(0, "<s>"), std::pair(1, "</s>")}) {
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  const Json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json text_b = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const Json template_processing = {{"type", "TemplateProcessing"},
                                    {"single", Json::array({bos, text})},
                                    {"pair", Json::array({bos, text, text_b})},
                                    {"special_tokens",
                                     {{"<s>",
                                       {{"id", "<s>"},
                                        {"ids", Json::array({0})},
                                        {"tokens", Json::array({"<s>"})}}}}}};
  return DumpJson({{"version", "1.0"},
                   {"truncation", nullptr},
                   {"padding", nullptr},
                   {"added_tokens", added},
                   {"normalizer", nullptr},
                   {"pre_tokenizer", byte_level},
                   {"post_processor", template_processing},
                   {"decoder", byte_level},
                   {"model",
                    {{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"vocab", vocab},
                     {"merges", merges}}}});
}

}  // namespace foretoken::testing
