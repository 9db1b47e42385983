// Every output of jinja2 must come back: tests/golden/chat_templates/make.py.
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "common/base/digest.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/text/jinja/json_value.h"
#include "common/text/jinja/template.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace foretoken::jinja {
namespace {

using ::foretoken::testing::SourcePath;

std::string Golden(const std::string& name) {
  return SourcePath("tests/golden/chat_templates/" + name);
}

std::vector<std::string> ReadLines(const std::string& path) {
  std::vector<std::string> lines;
  auto reader = LineReader::Open(path);
  EXPECT_THAT(reader, testing::IsOk());
  std::string line;
  while (reader.ok()) {
    const auto more = (*reader)->Next(line);
    EXPECT_THAT(more, testing::IsOk());
    if (!more.ok() || !*more) break;
    lines.push_back(line);
  }
  return lines;
}

RenderOptions Options() {
  RenderOptions options;
  options.now = absl::FromCivil(absl::CivilSecond(2024, 12, 5, 9, 3, 7),
                                absl::UTCTimeZone());
  return options;
}

// Expects what jinja2 did: `want` has its text, its hash or its error.
void ExpectLike(const Json& want, const absl::StatusOr<Text>& got,
                const std::string& what) {
  if (want.contains("error")) {
    EXPECT_FALSE(got.ok()) << what << " gave " << got->bytes();
    if (want.contains("raised") && !got.ok()) {
      EXPECT_EQ(got.status().message(), want.at("raised").get<std::string>())
          << what;
    }
    return;
  }
  ASSERT_THAT(got, testing::IsOk()) << what;
  if (want.contains("text")) {
    EXPECT_EQ(got->bytes(), want.at("text").get<std::string>()) << what;
  }
  if (want.contains("sha256")) {
    EXPECT_EQ(HexDigest(Sha256().Update(got->bytes()).Finish()),
              want.at("sha256").get<std::string>())
        << what;
  }
}

TEST(ChatGoldenTest, SnippetsEqualThoseOfJinja2) {
  int count = 0;
  for (const std::string& line : ReadLines(Golden("snippets.jsonl.gz"))) {
    const Json row = ParseJson(line).value();
    const std::string source = row.at("source").get<std::string>();
    const auto parsed = Template::Parse(source);
    ++count;
    if (!parsed.ok()) {
      EXPECT_TRUE(row.contains("error")) << source << parsed.status();
      continue;
    }
    ExpectLike(row, parsed->Render({{"messages", Value::None()}}, Options()),
               source);
  }
  EXPECT_GE(count, 150);
}

// The tokens that make.py gives to a template of this name.
std::pair<std::string, std::string> Tokens(const std::string& name) {
  if (absl::StartsWith(name, "llama")) {
    return {"<|begin_of_text|>", "<|eot_id|>"};
  }
  if (absl::StartsWith(name, "deepseek")) {
    return {"<\uff5cbegin\u2581of\u2581sentence\uff5c>",
            "<\uff5cend\u2581of\u2581sentence\uff5c>"};
  }
  if (absl::StartsWith(name, "gemma")) return {"<bos>", "<eos>"};
  if (absl::StartsWith(name, "command")) {
    return {"<BOS_TOKEN>", "<EOS_TOKEN>"};
  }
  return {"<s>", "</s>"};
}

// Returns the number of templates.
int CheckOutputs(const std::string& folder, const std::string& outputs) {
  std::vector<Variables> conversations;
  for (const std::string& line : ReadLines(Golden("conversations.jsonl.gz"))) {
    const auto values = ParseJsonValue(line, Origin::kRequest);
    EXPECT_THAT(values, testing::IsOk());
    Variables variables;
    for (const auto& [key, value] : values->dict().entries()) {
      variables.emplace_back(key.text().bytes(), value);
    }
    conversations.push_back(std::move(variables));
  }
  std::map<std::string, absl::StatusOr<Template>> templates;
  for (const std::string& line : ReadLines(outputs)) {
    const Json row = ParseJson(line).value();
    const std::string name = row.at("template").get<std::string>();
    const size_t index = row.at("conversation").get<size_t>();
    if (!templates.contains(name)) {
      const auto source = ReadFile(absl::StrCat(folder, "/", name, ".jinja"));
      EXPECT_THAT(source, testing::IsOk());
      templates.emplace(name, Template::Parse(source.value_or("{{")));
      EXPECT_THAT(templates.at(name), testing::IsOk()) << name;
    }
    const absl::StatusOr<Template>& parsed = templates.at(name);
    if (!parsed.ok()) continue;
    Variables variables = conversations.at(index);
    const auto [bos, eos] = Tokens(name);
    variables.emplace_back("bos_token", Value::String(bos));
    variables.emplace_back("eos_token", Value::String(eos));
    ExpectLike(row, parsed->Render(variables, Options()),
               absl::StrCat(name, " of conversation ", index));
  }
  return static_cast<int>(templates.size());
}

TEST(ChatGoldenTest, TemplatesEqualJinja2OnEveryConversation) {
  EXPECT_EQ(CheckOutputs(Golden("templates"), Golden("outputs.jsonl.gz")), 28);
}

// Templates that may not be committed: FORETOKEN_CHAT_TEMPLATES names a folder
// of them with an outputs.jsonl.gz of `make.py --outputs-of`.
TEST(ChatGoldenTest, TemplatesOfTheMachineEqualJinja2) {
  const char* const folder = std::getenv("FORETOKEN_CHAT_TEMPLATES");
  if (folder == nullptr) {
    GTEST_SKIP() << "FORETOKEN_CHAT_TEMPLATES is not set";
  }
  EXPECT_GE(CheckOutputs(folder, absl::StrCat(folder, "/outputs.jsonl.gz")), 1);
}

}  // namespace
}  // namespace foretoken::jinja
