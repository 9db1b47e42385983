#include "common/text/chat/thinking_splitter.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

constexpr ThinkingTags kTags = {"<think>", "</think>"};
constexpr char kSpaces[] = " \t\n\r";

struct Joined {
  std::string thinking, content;
  int64_t thinking_bytes = 0;
  bool operator==(const Joined&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Joined& joined) {
  return out << "'" << joined.thinking << "', '" << joined.content << "', "
             << joined.thinking_bytes;
}

Joined Split(const std::vector<std::string>& pieces,
             const ThinkingOptions& options) {
  ThinkingSplitter splitter(kTags, options);
  Joined joined;
  const auto add = [&](const ThinkingSplitter::Parts& parts) {
    // Thinking comes first.
    EXPECT_TRUE(parts.thinking.empty() || joined.content.empty());
    joined.thinking += parts.thinking;
    joined.content += parts.content;
  };
  for (const std::string& piece : pieces) add(splitter.Add(piece));
  add(splitter.Finish());
  joined.thinking_bytes = splitter.thinking_bytes();
  return joined;
}

struct Case {
  std::string text;
  std::string thinking, content;
  ThinkingOptions options = {};
};

const std::vector<Case>& Cases() {
  constexpr ThinkingOptions kOpened = {.opened = true};
  constexpr ThinkingOptions kVerbatim = {.verbatim = true};
  constexpr ThinkingOptions kKeeps = {.opened = true, .keeps_space = true};
  static const auto* const cases = new std::vector<Case>{
      {"Hello", "", "Hello"},
      {"", "", ""},
      {" \n ", "", " \n "},
      {"<think>\nI see.\n</think>\n\nHi", "I see.", "Hi"},
      {" \n<think>a</think>b ", "a", "b "},
      {"<think>\n\n</think>\n\nHi", "", "Hi"},
      {"<think></think>", "", ""},
      {"a <think>b</think>c", "", "a <think>b</think>c"},
      {"<thinking>a</think>", "", "<thinking>a</think>"},
      {"</think>a", "", "</think>a"},
      {"<think>a</think><think>b</think>", "a", "<think>b</think>"},
      {"<think>a<</think>b</thi</think>c", "a<", "b</thi</think>c"},
      {"<think>a </thi <think> b</think>c", "a </thi <think> b", "c"},
      // Cut off, before the tag, in it, and in the thinking.
      {" <thin", "", " <thin"},
      {"<think>", "", ""},
      {"<think> a\nb\n", "a\nb\n", ""},
      {"<think>a\n</thin", "a\n</thin", ""},
      {"<think>a</think>\n", "a", ""},
      // Limits of white space.
      {absl::StrCat(std::string(64, ' '), "<think>a</think>b"), "a", "b"},
      {absl::StrCat(std::string(65, ' '), "<think>a"), "",
       absl::StrCat(std::string(65, ' '), "<think>a")},
      {absl::StrCat("<think>a", std::string(70, '\n'), "</think>b"),
       absl::StrCat("a", std::string(6, '\n')), "b"},
      {absl::StrCat("<think>", std::string(99, '\n'), "a</think>",
                    std::string(99, '\n'), "b"),
       "a", "b"},
      // Opened by the prompt.
      {"\nI see.\n</think>\n\nHi", "I see.", "Hi", kOpened},
      {"</think>Hi", "", "Hi", kOpened},
      {"a", "a", "", kOpened},
      {"", "", "", kOpened},
      // White space behind the tag is the text's.
      {" a </think>\n b", "a", "\n b", kKeeps},
      // As it was written.
      {" <think>\na \n</think>\n\nb", " <think>\na \n</think>", "\n\nb",
       kVerbatim},
      {"<think>\na </thi", "<think>\na </thi", "", kVerbatim},
      {" <thi", "", " <thi", kVerbatim},
      {"\n</think>\nb",
       "\n</think>",
       "\nb",
       {.opened = true, .verbatim = true}}};
  return *cases;
}

TEST(ThinkingSplitterTest, AnAnswerIsThinkingAndContent) {
  for (const Case& test : Cases()) {
    const Joined joined = Split({test.text}, test.options);
    EXPECT_EQ(joined.thinking, test.thinking) << test.text;
    EXPECT_EQ(joined.content, test.content) << test.text;
  }
}

// Text in one to `most` random pieces.
std::vector<std::string> Cut(const std::string& text, size_t most,
                             std::minstd_rand& random) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t size = 1 + random() % most;
    pieces.push_back(text.substr(at, size));
    at += size;
  }
  return pieces;
}

TEST(ThinkingSplitterTest, CutsChangeNothing) {
  std::minstd_rand random(1);
  for (const Case& test : Cases()) {
    const Joined whole = Split({test.text}, test.options);
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(Split(Cut(test.text, 1 + i % 9, random), test.options), whole)
          << test.text;
    }
  }
}

// The same by searching the whole text. Its runs of white space are short.
Joined Searched(const std::string& text, bool opened) {
  size_t begin = 0;
  if (!opened) {
    begin = text.find_first_not_of(kSpaces);
    if (begin == std::string::npos ||
        !absl::StartsWith(text.substr(begin), kTags.open)) {
      return {"", text, 0};
    }
    begin += kTags.open.size();
  }
  const size_t end = text.find(std::string(kTags.close), begin);
  std::string thinking = text.substr(
      begin, end == std::string::npos ? std::string::npos : end - begin);
  thinking.erase(0, thinking.find_first_not_of(kSpaces));
  if (end == std::string::npos) {
    return {thinking, "", static_cast<int64_t>(text.size())};
  }
  thinking.erase(thinking.find_last_not_of(kSpaces) + 1);
  const size_t behind = end + kTags.close.size();
  const size_t content = text.find_first_not_of(kSpaces, behind);
  return {thinking, content == std::string::npos ? "" : text.substr(content),
          static_cast<int64_t>(behind)};
}

TEST(ThinkingSplitterTest, RandomTextsAreSplitAsASearchSplitsThem) {
  const std::vector<std::string> parts = {"<think>", "</think>", "<", "/think>",
                                          " ",       "\n",       "a", "<thi",
                                          "</thin",  "\u00e9"};
  std::minstd_rand random(2);
  int with_both = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (size_t k = random() % 12; k > 0; --k) {
      text += parts[random() % parts.size()];
    }
    const bool opened = i % 2 == 0;
    const Joined joined = Split(Cut(text, 5, random), {.opened = opened});
    EXPECT_EQ(joined, Searched(text, opened)) << text;
    with_both += !joined.thinking.empty() && !joined.content.empty();
    const Joined verbatim =
        Split(Cut(text, 5, random), {.opened = opened, .verbatim = true});
    EXPECT_EQ(absl::StrCat(verbatim.thinking, verbatim.content), text);
  }
  EXPECT_GT(with_both, 500);
}

TEST(ThinkingSplitterTest, TextThatIsCertainIsNotHeldBack) {
  ThinkingSplitter splitter(kTags, {});
  EXPECT_EQ(splitter.Add("<think>ab").thinking, "ab");
  EXPECT_EQ(splitter.Add(" c <").thinking, " c");
  EXPECT_EQ(splitter.Add("d").thinking, " <d");
  EXPECT_EQ(splitter.Add("</think>").thinking, "");
  EXPECT_TRUE(splitter.ended());
  EXPECT_EQ(splitter.Add(" e ").content, "e ");
}

}  // namespace
}  // namespace foretoken
