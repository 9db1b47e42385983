#include "services/gateway/core/json_text.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "gtest/gtest.h"
#include "services/gateway/core/token_texts.h"

namespace foretoken::gateway {
namespace {

std::string Written(const std::string& text) {
  std::string out;
  AppendJsonString(text, out);
  return out;
}

TEST(JsonTextTest, StringsAreReadBackAsTheyWere) {
  std::string text = "a\"b\\c/é漢🙂\u2028 \x7F";
  for (int c = 0; c < 0x20; ++c) text += static_cast<char>(c);
  EXPECT_EQ(Json::parse(Written(text)).get<std::string>(), text);
}

TEST(JsonTextTest, MalformedBytesAreReplaced) {
  for (const std::string bytes : {"\xFF", "\xC3", "\xED\xA0\x80", "\xE2\x82"}) {
    const std::string read =
        Json::parse(Written("a" + bytes)).get<std::string>();
    EXPECT_EQ(read.substr(0, 4), "a\xEF\xBF\xBD");
  }
  EXPECT_EQ(Json::parse(Written("\xFFz")).get<std::string>(), "\xEF\xBF\xBDz");
}

TEST(JsonTextTest, BytesAreCountedAsTheyAreAppended) {
  std::string text = "plain \"q\\ é漢🙂";
  for (int c = 0; c < 0x20; ++c) text += static_cast<char>(c);
  for (const std::string& each :
       {std::string(), text, text + "\xFFz", text + "\xE2\x82"}) {
    EXPECT_EQ(JsonStringBytes(each), Written(each).size()) << each;
  }
}

TEST(JsonTextTest, TokensAreAnArray) {
  const std::vector<std::pair<std::vector<TokenId>, std::string>> cases = {
      {{}, "[]"},
      {{0}, "[0]"},
      {{9, 10, 99, 100}, "[9,10,99,100]"},
      {{std::numeric_limits<TokenId>::max(), 0}, "[2147483647,0]"}};
  for (const auto& [tokens, json] : cases) {
    std::string out;
    AppendJsonTokens(tokens, out);
    EXPECT_EQ(out, json);
    EXPECT_EQ(JsonTokensBytes(tokens), json.size());
  }
}

TEST(JsonTextTest, LogprobsHaveTheDigitsOfAFloat) {
  const float value = -0.123456789f;
  std::string out;
  AppendLogprob(value, out);
  EXPECT_EQ(Json::parse(out).get<float>(), value);
  out.clear();
  AppendLogprob(-std::numeric_limits<float>::infinity(), out);
  EXPECT_EQ(Json::parse(out).get<double>(), -9999.0);
}

TEST(JsonTextTest, CharactersAreCountedAsPythonDoes) {
  EXPECT_EQ(CountCharacters("aé漢🙂"), 4);
  EXPECT_EQ(CountCharacters("\xFF\xFF"), 2);
  EXPECT_EQ(CountCharacters(""), 0);
}

}  // namespace
}  // namespace foretoken::gateway
