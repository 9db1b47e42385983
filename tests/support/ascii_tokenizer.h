// A byte-level tokenizer of printable ASCII, the space, the line feed and the
// bytes of é, one token each, with further tokens of the test's.
#ifndef FORETOKEN_TESTS_SUPPORT_ASCII_TOKENIZER_H_
#define FORETOKEN_TESTS_SUPPORT_ASCII_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/json.h"
#include "common/text/hf_tokenizer.h"
#include "common/text/tokenizer.h"
#include "gtest/gtest.h"

namespace foretoken::testing {

// `added`: a JSON array of {"id", "content", "special"}, with ids from 100.
inline std::shared_ptr<const Tokenizer> MakeAsciiTokenizer(
    absl::string_view added) {
  Json vocabulary = Json::object();
  int id = 0;
  for (char c = '!'; c <= '~'; ++c) vocabulary[std::string(1, c)] = id++;
  vocabulary["\u0120"] = id++;  // the space, as byte-level BPE spells it
  vocabulary["\u010A"] = id++;  // the line feed
  vocabulary["\u00c3"] = id++;  // the bytes of é
  vocabulary["\u00a9"] = id++;
  Json file = Json::parse(R"({
    "normalizer": null, "post_processor": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
                      "use_regex": true},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "merges": []}})");
  file["added_tokens"] = Json::parse(added.begin(), added.end());
  file["model"]["vocab"] = vocabulary;
  auto tokenizer = MakeHfTokenizer(DumpJson(file), {});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_ASCII_TOKENIZER_H_
