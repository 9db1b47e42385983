#include "services/gateway/core/field_rules.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/infill_request.h"
#include "services/gateway/core/requests.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"
#include "tests/unit/services/gateway/service_fixture.h"

namespace foretoken::gateway {
namespace {

using ::foretoken::testing::IsOk;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr ApiEndpoint kEndpoints[] = {kCompletions, kChats, kResponses,
                                      kMessages, kInfill};

// `members`: of the body, beside what the endpoint requires.
absl::StatusOr<ApiRequest> Read(ApiEndpoint endpoint,
                                const std::string& members) {
  switch (endpoint) {
    case kCompletions:
      return ReadCompletionRequest(
          absl::StrCat(R"({"prompt": "a", )", members, "}"));
    case kChats:
      return ReadChatRequest(
          absl::StrCat(R"({"messages": [{"role": "user", "content": "a"}], )",
                       members, "}"));
    case kMessages:
      return ReadMessagesRequest(absl::StrCat(
          R"({"max_tokens": 9, "messages": [{"role": "user", "content": "a"}],
              )",
          members, "}"));
    case kInfill: {
      auto read = ReadInfillRequest(absl::StrCat(
          R"({"input_prefix": "a", "input_suffix": "b", )", members, "}"));
      if (!read.ok()) return read.status();
      return std::move(read->request);
    }
    default:
      return ReadResponsesRequest(
          absl::StrCat(R"({"input": "a", )", members, "}"));
  }
}

std::string Member(absl::string_view name, absl::string_view value) {
  return absl::StrCat("\"", name, "\": ", value);
}

void ExpectTaken(ApiEndpoint endpoint, const std::string& members,
                 const std::vector<std::string>& ignored) {
  const auto request = Read(endpoint, members);
  ASSERT_THAT(request, IsOk()) << members;
  EXPECT_EQ(request->ignored_fields, ignored) << members;
}

// The message, without the field's name.
std::string Refusal(ApiEndpoint endpoint, absl::string_view field,
                    const std::string& members) {
  const auto request = Read(endpoint, members);
  EXPECT_FALSE(request.ok()) << members;
  if (request.ok()) return "";
  const ApiError error = ToApiError(request.status());
  EXPECT_EQ(error.http_status, 400) << members;
  EXPECT_EQ(error.param, field) << members;
  EXPECT_TRUE(absl::StartsWith(error.message, absl::StrCat(field, ": ")))
      << error.message;
  return error.message.substr(std::min(field.size() + 2, error.message.size()));
}

// Another name of a field: a value that arrives, and one that differs from it.
struct OtherName {
  const char* value;
  const char* other;
  bool (*arrived)(const ApiRequest&);
};

bool HasScope(const ApiRequest& request) {
  return request.generation.cache_scope == "a" && !request.own_prefixes;
}
bool HasLimit(const ApiRequest& request) { return request.max_tokens == 7; }

const std::map<std::string, OtherName>& OtherNames() {
  static const auto* const names = new std::map<std::string, OtherName>{
      {"prompt_cache_key", {"\"a\"", "\"b\"", HasScope}},
      {"cache_salt", {"\"a\"", "\"b\"", HasScope}},
      {"repeat_penalty",
       {"1.5", "1.6",
        [](const ApiRequest& request) {
          return request.generation.sampling.repetition_penalty == 1.5f;
        }}},
      {"n_predict", {"7", "8", HasLimit}},
      {"num_predict", {"7", "8", HasLimit}},
      {"think",
       {"false", "true",
        [](const ApiRequest& request) {
          return request.thinking_wish.enabled == false &&
                 request.thinking_wish.enabled_field == "think";
        }}},
  };
  return *names;
}

void CheckName(const FieldRule& rule, ApiEndpoint endpoint) {
  ASSERT_EQ(OtherNames().count(rule.name), 1u) << rule.name;
  const OtherName& name = OtherNames().at(rule.name);
  const std::string members = Member(rule.name, name.value);
  const auto request = Read(endpoint, members);
  ASSERT_THAT(request, IsOk()) << members;
  EXPECT_TRUE(name.arrived(*request)) << members;
  EXPECT_THAT(request->ignored_fields, IsEmpty());
  // Both names agree, or the request is refused.
  ExpectTaken(endpoint,
              absl::StrCat(members, ", ", Member(rule.detail, name.value)), {});
  EXPECT_EQ(
      Refusal(endpoint, rule.name,
              absl::StrCat(members, ", ", Member(rule.detail, name.other))),
      absl::StrCat("differs from ", rule.detail));
  // Errors of the field show the name that was given.
  Refusal(endpoint, rule.name, Member(rule.name, "[[]]"));
}

void CheckNeutral(const FieldRule& rule, ApiEndpoint endpoint,
                  const std::string& others) {
  std::vector<std::string> wanted;
  for (const Json& value : Json::parse(rule.detail)) {
    wanted.push_back(value.dump());
    ExpectTaken(endpoint, absl::StrCat(Member(rule.name, value.dump()), others),
                {});
  }
  EXPECT_EQ(
      Refusal(endpoint, rule.name,
              absl::StrCat(Member(rule.name, R"(["asks for it"])"), others)),
      absl::StrCat("this value is not supported, want ",
                   absl::StrJoin(wanted, " or ")));
}

void CheckIgnored(const FieldRule& rule, ApiEndpoint endpoint) {
  for (const char* value : {"0", "-1.5", "\"5m\"", "true", "[1]", "{}"}) {
    ExpectTaken(endpoint, Member(rule.name, value), {rule.name});
  }
}

void CheckRule(const FieldRule& rule, ApiEndpoint endpoint) {
  switch (rule.use) {
    case FieldUse::kName:
      CheckName(rule, endpoint);
      break;
    case FieldUse::kRead:  // in tests of their own, by name
      EXPECT_THAT((std::set<std::string>{"cache_prompt", "reasoning_effort",
                                         "enable_thinking"}),
                  ::testing::Contains(rule.name));
      ASSERT_THAT(Read(endpoint, Member(rule.name, "null")), IsOk());
      Refusal(endpoint, rule.name, Member(rule.name, "7"));
      break;
    case FieldUse::kNeutral:
      CheckNeutral(rule, endpoint, "");
      break;
    case FieldUse::kIgnored:
      CheckIgnored(rule, endpoint);
      break;
    case FieldUse::kWithoutPenalties:
      CheckIgnored(rule, endpoint);
      for (const char* penalty :
           {R"("repetition_penalty": 1.1)", R"("presence_penalty": 0.5)",
            R"("frequency_penalty": -0.5)", R"("repeat_penalty": 1.1)"}) {
        CheckNeutral(rule, endpoint, absl::StrCat(", ", penalty));
      }
      break;
    case FieldUse::kRefused:
      for (const char* value : {"0", "\"a\"", "true", "[]", "{}"}) {
        EXPECT_EQ(Refusal(endpoint, rule.name, Member(rule.name, value)),
                  "not supported");
      }
      break;
  }
}

TEST(FieldRulesTest, EveryRowDoesWhatItSays) {
  EXPECT_GT(FieldRules().size(), 90u);
  for (const FieldRule& rule : FieldRules()) {
    SCOPED_TRACE(rule.name);
    for (const ApiEndpoint endpoint : kEndpoints) {
      if ((rule.endpoints & endpoint) == 0) continue;
      CheckRule(rule, endpoint);
      // One that is null counts as absent.
      ExpectTaken(endpoint, Member(rule.name, "null"), {});
    }
  }
}

// Names of rules that are fields of their own of other endpoints.
bool IsServed(absl::string_view name, ApiEndpoint endpoint) {
  switch (endpoint) {
    case kCompletions:
      return name == "prompt" || name == "echo";
    case kMessages:
      return name == "service_tier" || name == "context_management";
    case kInfill:
      return name == "prompt";
    default:
      return false;
  }
}

TEST(FieldRulesTest, AFieldOfAnotherEndpointIsUnknown) {
  for (const FieldRule& rule : FieldRules()) {
    SCOPED_TRACE(rule.name);
    for (const ApiEndpoint endpoint : kEndpoints) {
      const auto has_rule = [&](const FieldRule& other) {
        return other.name == absl::string_view(rule.name) &&
               (other.endpoints & endpoint) != 0;
      };
      if (IsServed(rule.name, endpoint) ||
          std::any_of(FieldRules().begin(), FieldRules().end(), has_rule)) {
        continue;
      }
      EXPECT_EQ(Refusal(endpoint, rule.name, Member(rule.name, "[]")),
                "this server knows no such field");
    }
  }
}

TEST(FieldRulesTest, AFieldHasOneRuleOfAnEndpoint) {
  std::set<std::pair<std::string, ApiEndpoint>> seen;
  for (const FieldRule& rule : FieldRules()) {
    EXPECT_STRNE(rule.servers, "");
    for (const ApiEndpoint endpoint : kEndpoints) {
      if ((rule.endpoints & endpoint) == 0) continue;
      EXPECT_TRUE(seen.emplace(rule.name, endpoint).second) << rule.name;
    }
  }
}

TEST(FieldRulesTest, ThreeNamesOfOneFieldAgree) {
  ExpectTaken(kChats, R"("cache_salt": "a", "prompt_cache_key": "a",
                         "cache_scope": "a")",
              {});
  const auto request =
      Read(kChats, R"("cache_salt": "a", "prompt_cache_key": "b")");
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(ToApiError(request.status()).message,
            "prompt_cache_key: differs from cache_salt");
}

TEST(FieldRulesTest, WithoutACacheForItsPromptARequestSharesNothing) {
  for (const ApiEndpoint endpoint : kEndpoints) {
    const auto shares = [&](const std::string& members) {
      const auto request = Read(endpoint, members);
      EXPECT_THAT(request, IsOk()) << members;
      return request.ok() && request->own_prefixes;
    };
    EXPECT_TRUE(shares(R"("cache_prompt": true)"));
    EXPECT_FALSE(shares(R"("cache_prompt": false)"));
    EXPECT_FALSE(shares(R"("cache_prompt": false, "cache_scope": "")"));
    EXPECT_FALSE(shares(R"("cache_prompt": true, "cache_scope": "a")"));
    EXPECT_EQ(Refusal(endpoint, "cache_prompt",
                      R"("cache_prompt": false, "prompt_cache_key": "a")"),
              "is false, but prompt_cache_key names a scope");
  }
}

// The page has the same rows, with the same values.
TEST(FieldRulesTest, TheDocumentationHasEveryRow) {
  const auto page =
      ReadFile(testing::SourcePath("docs/api_fields.md"), 1 << 20);
  FORETOKEN_ASSERT_OK(page);
  std::vector<std::string> rows;
  for (const absl::string_view line : absl::StrSplit(*page, '\n')) {
    if (absl::StartsWith(line, "|")) rows.emplace_back(line);
  }
  const auto in_code = [](absl::string_view text) {
    return absl::StrCat("`", text, "`");
  };
  for (const FieldRule& rule : FieldRules()) {
    bool found = false;
    for (const std::string& row : rows) {
      bool whole = absl::StrContains(row, in_code(rule.name)) &&
                   absl::StrContains(row, rule.servers);
      if (rule.use == FieldUse::kName) {
        whole = whole && absl::StrContains(row, in_code(rule.detail));
      }
      if (rule.use == FieldUse::kNeutral ||
          rule.use == FieldUse::kWithoutPenalties) {
        for (const Json& value : Json::parse(rule.detail)) {
          whole = whole && absl::StrContains(row, in_code(value.dump()));
        }
      }
      found = found || whole;
    }
    EXPECT_TRUE(found) << "docs/api_fields.md has no row for " << rule.name;
  }
}

class IgnoredFieldsTest : public GatewayServiceTest {
 protected:
  static constexpr char kHeader[] = "X-Foretoken-Ignored-Fields";
};

TEST_F(IgnoredFieldsTest, TheAnswerNamesThem) {
  const auto none = Chat("");
  call().Finish(1);
  EXPECT_EQ(none->Header(kHeader), "");
  const auto two = Chat(R"(, "user": "u", "keep_alive": "5m", "mirostat": 0)");
  call(1).Finish(1);
  EXPECT_EQ(two->response.status, 200);
  const std::vector<std::string> names =
      absl::StrSplit(two->Header(kHeader), ", ");
  EXPECT_THAT(names, UnorderedElementsAre("user", "keep_alive"));
  const auto stream = Complete(R"(, "stream": true, "priority": 3)");
  call(2).Write("b", {98});
  EXPECT_EQ(stream->streams, 1);
  EXPECT_EQ(stream->Header(kHeader), "priority");
}

}  // namespace
}  // namespace foretoken::gateway
