#include "services/gateway/core/requests.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/generation_fields.h"
#include "tests/support/status_matchers.h"

namespace foretoken::gateway {
namespace {

using ::foretoken::testing::IsOk;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

ApiRequest Completion(const std::string& fields) {
  auto request =
      ReadCompletionRequest(absl::StrCat(R"({"prompt": "a")", fields, "}"));
  EXPECT_THAT(request, IsOk()) << fields;
  return request.ok() ? *std::move(request) : ApiRequest();
}

ApiError CompletionError(const std::string& body) {
  const auto request = ReadCompletionRequest(body);
  EXPECT_FALSE(request.ok()) << body;
  return ToApiError(request.status());
}

ApiError ChatError(const std::string& fields) {
  const auto request = ReadChatRequest(absl::StrCat(
      R"({"messages": [{"role": "user", "content": "a"}])", fields, "}"));
  EXPECT_FALSE(request.ok()) << fields;
  return ToApiError(request.status());
}

TEST(CompletionRequestTest, DefaultsAreThoseOfOpenAi) {
  const ApiRequest request = Completion("");
  EXPECT_EQ(request.generation.sampling.temperature, 1.0f);
  EXPECT_EQ(request.generation.sampling.top_p, 1.0f);
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_EQ(request.n, 1);
  EXPECT_FALSE(request.generation.has_seed);
  EXPECT_FALSE(request.stream);
  EXPECT_EQ(request.generation.sampling.logprobs, -1);
  EXPECT_FALSE(request.generation.mode.has_value());
}

TEST(CompletionRequestTest, EveryFieldOfSamplingArrives) {
  const ApiRequest request = Completion(R"(,
      "temperature": 0.8, "top_p": 0.9, "top_k": 40, "min_p": 0.05,
      "repetition_penalty": 1.1, "presence_penalty": 0.5,
      "frequency_penalty": -0.5, "logit_bias": {"7": -100, "9": 1.5},
      "seed": 42, "min_tokens": 3, "logprobs": 5, "max_tokens": 100,
      "stop": ["x", "y"], "stop_token_ids": [3, 4], "ignore_eos": true,
      "cache_scope": "mine", "user": "somebody", "n": 2, "best_of": 2,
      "suffix": "", "stream": true, "stream_options": {"include_usage": true},
      "foretoken": {"tokens": true, "rounds": true})");
  const SamplingParams& sampling = request.generation.sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.8f);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.05f);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(sampling.presence_penalty, 0.5f);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, -0.5f);
  EXPECT_THAT(sampling.logit_bias,
              ::testing::UnorderedElementsAre(Pair(7, -100.0f), Pair(9, 1.5f)));
  EXPECT_TRUE(request.generation.has_seed);
  EXPECT_EQ(sampling.seed, 42u);
  EXPECT_EQ(sampling.min_tokens, 3);
  EXPECT_EQ(sampling.logprobs, 5);
  EXPECT_EQ(request.max_tokens, 100);
  EXPECT_THAT(request.generation.stop_strings, ElementsAre("x", "y"));
  EXPECT_THAT(request.generation.stop_token_ids, ElementsAre(3, 4));
  EXPECT_TRUE(request.generation.ignore_eos);
  EXPECT_EQ(request.generation.cache_scope, "mine");
  EXPECT_EQ(request.choices(), 2);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_TRUE(request.want_tokens);
  EXPECT_TRUE(request.want_rounds);
}

TEST(CompletionRequestTest, ThePromptCacheKeyIsTheCacheScope) {
  const auto read = [](const std::string& fields) {
    const ApiRequest request = Completion(fields);
    return std::pair(request.generation.cache_scope, request.own_prefixes);
  };
  EXPECT_EQ(read(""), std::pair(std::string(), true));
  EXPECT_EQ(read(R"(, "prompt_cache_key": null)"),
            std::pair(std::string(), true));
  EXPECT_EQ(read(R"(, "prompt_cache_key": "a")"),
            std::pair(std::string("a"), false));
  EXPECT_EQ(read(R"(, "prompt_cache_key": "a", "cache_scope": "a")"),
            std::pair(std::string("a"), false));
  EXPECT_EQ(read(R"(, "cache_scope": "")"), std::pair(std::string(), false));
  EXPECT_EQ(read(absl::StrCat(R"(, "prompt_cache_key": ")",
                              std::string(256, 'a'), "\""))
                .first.size(),
            256u);
  const auto wrong = [](const std::string& fields) {
    const ApiError error =
        CompletionError(absl::StrCat(R"({"prompt": "a", )", fields, "}"));
    EXPECT_EQ(error.param, "prompt_cache_key") << error.message;
    return error.message;
  };
  EXPECT_EQ(wrong(R"("prompt_cache_key": "a", "cache_scope": "b")"),
            "prompt_cache_key: differs from cache_scope");
  EXPECT_EQ(wrong(absl::StrCat(R"("prompt_cache_key": ")",
                               std::string(257, 'a'), "\"")),
            "prompt_cache_key: want at most 256 bytes");
  EXPECT_EQ(wrong(R"("prompt_cache_key": 1)"),
            "prompt_cache_key: want a string");
}

TEST(CompletionRequestTest, PromptsAreTextsOrTokenIds) {
  const auto prompts = [](const std::string& value) {
    return ReadCompletionRequest(absl::StrCat("{\"prompt\":", value, "}"))
        .value()
        .prompts;
  };
  EXPECT_THAT(prompts(R"("a")"), ElementsAre(Prompt("a")));
  EXPECT_THAT(prompts(R"(["a", "b"])"), ElementsAre(Prompt("a"), Prompt("b")));
  EXPECT_THAT(prompts("[1, 2]"),
              ElementsAre(Prompt(std::vector<TokenId>{1, 2})));
  EXPECT_THAT(prompts("[[1], [2, 3]]"),
              ElementsAre(Prompt(std::vector<TokenId>{1}),
                          Prompt(std::vector<TokenId>{2, 3})));
}

TEST(CompletionRequestTest, BadPromptsAreRefused) {
  for (const char* prompt : {"17", "[]", "[1, \"a\"]", "[-1]", "[\"a\", [1]]",
                             "[2147483648]", "[1.5]", "{}", "null"}) {
    const ApiError error =
        CompletionError(absl::StrCat("{\"prompt\":", prompt, "}"));
    EXPECT_EQ(error.http_status, 400) << prompt;
    EXPECT_EQ(error.param, "prompt") << prompt;
  }
}

TEST(CompletionRequestTest, NullIsAbsent) {
  const ApiRequest request = Completion(
      R"(, "temperature": null, "stop": null, "suffix": null, "unknown": null)");
  EXPECT_EQ(request.generation.sampling.temperature, 1.0f);
}

// Field, and a body that has it wrong.
TEST(CompletionRequestTest, ErrorsNameTheField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"temperature", R"("temperature": "hot")"},
      {"temperature", R"("temperature": -1)"},
      {"top_p", R"("top_p": 0)"},
      {"top_p", R"("top_p": 1.5)"},
      {"top_k", R"("top_k": -2)"},
      {"top_k", R"("top_k": 1.5)"},
      {"min_p", R"("min_p": 2)"},
      {"repetition_penalty", R"("repetition_penalty": 0)"},
      {"presence_penalty", R"("presence_penalty": 3)"},
      {"frequency_penalty", R"("frequency_penalty": "x")"},
      {"logit_bias", R"("logit_bias": {"a": 1})"},
      {"logit_bias", R"("logit_bias": {"1": 101})"},
      {"logit_bias", R"("logit_bias": [1])"},
      {"seed", R"("seed": 1.5)"},
      {"seed", R"("seed": 36893488147419103232)"},
      {"stop", R"("stop": [""])"},
      {"stop", R"("stop": 1)"},
      {"stop_token_ids", R"("stop_token_ids": ["a"])"},
      {"stop_token_ids", R"("stop_token_ids": [99999999999])"},
      {"n", R"("n": 0)"},
      {"n", R"("n": 129)"},
      {"best_of", R"("best_of": 3)"},
      {"max_tokens", R"("max_tokens": 0)"},
      {"logprobs", R"("logprobs": 21)"},
      {"logprobs", R"("logprobs": true)"},
      {"echo", R"("echo": true, "logprobs": 1)"},
      {"suffix", R"("suffix": "x")"},
      {"stream", R"("stream": 1)"},
      {"stream_options", R"("stream_options": {"include_usage": true})"},
      {"stream_options.other",
       R"("stream": true, "stream_options": {"other": 1})"},
      {"speculation", R"("speculation": "magic")"},
      {"speculation", R"("speculation": "draft_model:gamma=1000")"},
      {"speculation", R"("speculation": {"off": {}, "auto": {}})"},
      {"speculation.magic", R"("speculation": {"magic": {}})"},
      {"speculation.off", R"("speculation": {"off": 1})"},
      {"speculation.max_tree_nodes", R"("speculation": {"max_tree_nodes": 0})"},
      {"foretoken.other", R"("foretoken": {"other": true})"},
      {"foretoken.rounds", R"("foretoken": {"rounds": true})"},
      {"cache_scope", R"("cache_scope": 1)"},
      {"model", R"("model": 1)"},
      {"guided_json", R"("guided_json": [])"},
      {"guided_regex", R"("guided_regex": {})"},
      {"guided_choice", R"("guided_choice": "a")"},
      {"guided_choice", R"("guided_choice": [])"},
      {"guided_choice", R"("guided_choice": ["a", 1])"},
      {"guided_choice",
       absl::StrCat(
           R"("guided_choice": [)",
           absl::StrJoin(std::vector<std::string>(10'001, "\"a\""), ","), "]")},
      {"grammar", R"("grammar": 1)"},
      {"regex", R"("regex": "a", "guided_grammar": "root ::= [a]")"},
      {"json_schema", R"("json_schema": {}, "response_format":
                         {"type": "json_object"})"},
      {"structured_outputs", R"("structured_outputs": "a")"},
      {"structured_outputs", R"("structured_outputs": {"json": null})"},
      {"structured_outputs",
       R"("structured_outputs": {"disable_any_whitespace": true})"},
      {"structured_outputs.regex", R"("structured_outputs": {"regex": 1})"},
      {"structured_outputs.regex",
       R"("structured_outputs": {"json": {}, "regex": "a"})"},
      {"structured_outputs.json_object",
       R"("structured_outputs": {"json_object": "yes"})"},
      {"structured_outputs.structural_tag",
       R"("structured_outputs": {"structural_tag": {}})"},
      {"structured_outputs.disable_additional_properties",
       R"("structured_outputs": {"json": {},
                                 "disable_additional_properties": true})"},
      {"structured_outputs.whitespace_pattern",
       R"("structured_outputs": {"json": {}, "whitespace_pattern": " "})"},
      {"guided_decoding_backend", R"("guided_decoding_backend": 1)"},
      {"grammar", R"("grammar": "root ::= [a]", "response_format":
                     {"type": "structural_tag", "format": {}})"},
      {"response_format.type", R"("response_format": {})"},
      {"guided_whitespace_pattern", R"("guided_whitespace_pattern": "a")"}};
  for (const auto& [field, fields] : cases) {
    const ApiError error =
        CompletionError(absl::StrCat(R"({"prompt": "a", )", fields, "}"));
    EXPECT_EQ(error.http_status, 400) << fields;
    EXPECT_EQ(error.param, field) << fields << ": " << error.message;
    EXPECT_THAT(error.message, HasSubstr(field)) << fields;
  }
}

TEST(CompletionRequestTest, AValueThatIsNotServedNamesThoseThatAre) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("suffix": "x")", R"(suffix: this value is not supported, want "")"},
      {R"("prompt_cache_retention": "24h")",
       R"(want "in_memory" or "in-memory")"},
      {R"("response_format": {"type": "xml"})",
       "want text, json_object, json_schema or structural_tag"},
      {R"("speculation": "magic")", "want one of off "}};
  for (const auto& [field, served] : cases) {
    EXPECT_THAT(CompletionError(absl::StrCat(R"({"prompt": "a", )", field, "}"))
                    .message,
                HasSubstr(served));
  }
}

TEST(CompletionRequestTest, SpeculationIsAModeOrAnObject) {
  const auto mode = [](const std::string& value) {
    return Completion(absl::StrCat(", \"speculation\":", value)).generation;
  };
  EXPECT_EQ(mode(R"("off")").mode->ToString(), "off");
  EXPECT_EQ(mode(R"("prompt_lookup:max_n=2")").mode->ToString(),
            "prompt_lookup:max_n=2");
  const GenerationRequest object = mode(
      R"({"ouroboros": {"gamma": 7, "warm_start": false},
          "max_tree_nodes": 32})");
  EXPECT_THAT(object.mode->ToString(),
              AllOf(HasSubstr("ouroboros"), HasSubstr("gamma=7"),
                    HasSubstr("warm_start=false")));
  EXPECT_EQ(object.max_tree_nodes, 32);
  EXPECT_FALSE(mode(R"({"max_tree_nodes": 32})").mode.has_value());
}

TEST(CompletionRequestTest, SeedsAreAnyIntegers) {
  EXPECT_FALSE(Completion(R"(, "seed": -1)").generation.has_seed);
  EXPECT_TRUE(Completion(R"(, "seed": -2)").generation.has_seed);
  EXPECT_EQ(Completion(R"(, "seed": -2)").generation.sampling.seed, ~1ull);
  EXPECT_EQ(
      Completion(R"(, "seed": 18446744073709551615)").generation.sampling.seed,
      ~0ull);
}

TEST(CompletionRequestTest, TheFirstChoiceHasTheSeedOfTheRequest) {
  EXPECT_EQ(SeedOfChoice(17, 0), 17u);
  EXPECT_NE(SeedOfChoice(17, 1), SeedOfChoice(17, 2));
  EXPECT_NE(SeedOfChoice(17, 1), SeedOfChoice(18, 0));
}

TEST(CompletionRequestTest, ABodyThatIsNoObjectIsRefused) {
  EXPECT_EQ(CompletionError("[]").http_status, 400);
  EXPECT_EQ(CompletionError("7").http_status, 400);
}

TEST(ChatRequestTest, MessagesAndLimitsArrive) {
  const auto request = ReadChatRequest(R"({
      "model": "m",
      "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"},
                                     {"type": "text", "text": "b"}]}],
      "max_completion_tokens": 7, "max_tokens": 7, "logprobs": true,
      "top_logprobs": 3, "response_format": {"type": "text"}, "tools": [],
      "tool_choice": "none", "store": false, "metadata": {},
      "chat_template_kwargs": {"enable_thinking": false}})");
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->model, "m");
  EXPECT_EQ(request->max_tokens, 7);
  EXPECT_TRUE(request->logprobs);
  EXPECT_EQ(request->generation.sampling.logprobs, 3);
  const ChatRequest& chat = *request->conversation;
  // As the request spells them.
  EXPECT_EQ(chat.messages, R"([
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"},
                                     {"type": "text", "text": "b"}]}])");
  EXPECT_EQ(chat.variables, R"({"enable_thinking": false})");
  EXPECT_TRUE(chat.add_generation_prompt);
}

TEST(ChatRequestTest, NamesOfToolsAreThoseThatMayBeCalled) {
  const auto request = [](const std::string& fields) {
    return ReadChatRequest(
        absl::StrCat(R"({"messages": [{"role": "user", "content": "a"}],
                         "tools": [{"function": {"name": "f"}}, {"name": "g"},
                                   {"function": {"name": 3}}, {},
                                   {"function": {"name": ")",
                     std::string(257, 'n'), "\"}}]", fields, "}"));
  };
  const auto read = request("");
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->tool_names, (ToolNames{"f", "g"}));
  const auto none = request(R"(, "tool_choice": "none")");
  ASSERT_THAT(none, IsOk());
  EXPECT_TRUE(none->tool_names.empty());
}

TEST(ChatRequestTest, RulesOfToolsAreThoseOfTheChoiceAndOfStrictTools) {
  const auto request = [](const std::string& fields) {
    const auto read = ReadChatRequest(absl::StrCat(
        R"({"messages": [{"role": "user", "content": "a"}], "tools": [
             {"function": {"name": "f", "strict": true}},
             {"function": {"name": "g", "strict": false}},
             {"name": "h", "strict": true}])",
        fields, "}"));
    EXPECT_THAT(read, IsOk()) << fields;
    return *read;
  };
  const ApiRequest automatic = request("");
  EXPECT_FALSE(automatic.tool_rules.required);
  EXPECT_FALSE(automatic.one_call);
  EXPECT_EQ(automatic.tool_rules.strict, (ToolNames{"f", "h"}));
  const ApiRequest none = request(R"(, "tool_choice": "none")");
  EXPECT_TRUE(none.tool_rules.empty());
  EXPECT_FALSE(none.with_tools);
  const ApiRequest any = request(R"(, "tool_choice": "required")");
  EXPECT_TRUE(any.tool_rules.required);
  EXPECT_EQ(any.tool_rules.function, "");
  EXPECT_TRUE(any.with_tools);
  EXPECT_FALSE(any.one_call);
  const ApiRequest g = request(
      R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})");
  EXPECT_TRUE(g.tool_rules.required);
  EXPECT_EQ(g.tool_rules.function, "g");
  EXPECT_TRUE(g.one_call);
  // The constraint follows once the model's form is known.
  EXPECT_TRUE(g.generation.constraint.empty());
}

TEST(ChatRequestTest, WithoutALimitTheContextIsTheLimit) {
  const auto request =
      ReadChatRequest(R"({"messages": [{"role": "user", "content": "a"}]})");
  ASSERT_THAT(request, IsOk());
  EXPECT_FALSE(request->max_tokens.has_value());
  EXPECT_FALSE(request->logprobs);
  EXPECT_EQ(request->generation.sampling.logprobs, -1);
}

TEST(ChatRequestTest, ErrorsNameTheField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"max_tokens", R"(, "max_tokens": 1, "max_completion_tokens": 2)"},
      {"max_completion_tokens", R"(, "max_completion_tokens": 0)"},
      {"top_logprobs", R"(, "top_logprobs": 2)"},
      {"logprobs", R"(, "logprobs": 2)"},
      {"response_format.type", R"(, "response_format": {"type": "yaml"})"},
      {"response_format.schema",
       R"(, "response_format": {"type": "json_schema"})"},
      {"response_format.json_schema",
       R"(, "response_format": {"type": "json_schema", "json_schema": "a"})"},
      {"response_format.json_schema.schema",
       R"(, "response_format": {"type": "json_schema",
                                "json_schema": {"name": "a"}})"},
      {"response_format.json_schema.schema",
       R"(, "response_format": {"type": "json_schema",
                                "json_schema": {"schema": [1]}})"},
      {"response_format.json_schema.strict",
       R"(, "response_format": {"type": "json_schema",
                                "json_schema": {"schema": {}, "strict": 1}})"},
      {"response_format.json_schema.other",
       R"(, "response_format": {"type": "json_schema",
                                "json_schema": {"schema": {}, "other": 1}})"},
      {"response_format.type",
       R"(, "response_format": {"type": "json_object"}, "tools": [{}])"},
      {"response_format", R"(, "response_format": "text")"},
      {"functions", R"(, "functions": [{}])"},
      {"tools", R"(, "tools": {})"},
      {"tools",
       absl::StrCat(
           R"(, "tools": [)",
           absl::StrJoin(std::vector<std::string>(kMaxTools + 1, "{}"), ","),
           "]")},
      {"tools[0]", R"(, "tools": [3])"},
      {"tools[1]", R"(, "tools": [{}, null], "tool_choice": "none")"},
      {"tool_choice", R"(, "tool_choice": "required")"},
      {"tool_choice", R"(, "tools": [], "tool_choice": "required")"},
      {"tool_choice", R"(, "tools": [{}], "tool_choice": "required")"},
      {"tool_choice", R"(, "tools": [{"name": "f"}], "tool_choice": "any")"},
      {"tool_choice", R"(, "tools": [{"name": "f"}], "tool_choice": 1)"},
      {"tool_choice.function",
       R"(, "tools": [{"name": "f"}], "tool_choice": {"type": "function"})"},
      {"tool_choice.function",
       R"(, "tools": [{"name": "f"}],
            "tool_choice": {"type": "function", "function": "f"})"},
      {"tool_choice.function.name",
       R"(, "tools": [{"name": "f"}],
            "tool_choice": {"type": "function", "function": {}})"},
      {"tool_choice.function.name",
       R"(, "tools": [{"name": "f"}],
            "tool_choice": {"type": "function", "function": {"name": "g"}})"},
      {"tool_choice.type",
       R"(, "tools": [{"name": "f"}],
            "tool_choice": {"type": "allowed_tools"})"},
      {"tool_choice.type",
       R"(, "tools": [{"name": "f"}],
            "tool_choice": {"function": {"name": "f"}})"},
      {"tool_choice.name",
       R"(, "tools": [{"name": "f"}],
            "tool_choice": {"type": "function", "function": {"name": "f"},
                            "name": "f"})"},
      {"parallel_tool_calls", R"(, "parallel_tool_calls": 0)"},
      {"tools[1].function.strict",
       R"(, "tools": [{}, {"function": {"name": "f", "strict": 1}}])"},
      {"tools[1].function.name",
       R"(, "tools": [{}, {"function": {"strict": true}}])"},
      {"response_format.type",
       R"(, "response_format": {"type": "json_object"},
            "tools": [{"name": "f"}], "tool_choice": "required")"},
      {"max_tokens", R"(, "max_tokens": -2)"},
      {"stream_options", R"(, "stream_options": {"include_usage": true})"},
      {"verbosity", R"(, "verbosity": "low")"},
      {"modalities", R"(, "modalities": ["audio"])"},
      {"audio", R"(, "audio": {})"},
      {"store", R"(, "store": true)"},
      {"metadata", R"(, "metadata": {"a": 1})"},
      {"metadata", R"(, "metadata": [])"},
      {"prompt_cache_key", R"(, "prompt_cache_key": 1)"},
      {"prompt_cache_retention", R"(, "prompt_cache_retention": "24h")"},
      {"service_tier", R"(, "service_tier": "flex")"},
      {"reasoning_effort", R"(, "reasoning_effort": "some")"},
      {"reasoning_effort", R"(, "reasoning_effort": 1)"},
      {"prompt", R"(, "prompt": "a")"},
      {"chat_template_kwargs", R"(, "chat_template_kwargs": 1)"}};
  for (const auto& [field, fields] : cases) {
    const ApiError error = ChatError(fields);
    EXPECT_EQ(error.http_status, 400) << fields;
    EXPECT_EQ(error.param, field) << fields << ": " << error.message;
  }
}

// Both endpoints take them, and the source is what the request spells.
TEST(ConstraintFieldsTest, EveryServersFieldsArrive) {
  using Kind = Constraint::Kind;
  const std::string schema = R"({"z": {"b": 1.50, "a": [ ]}, "a":"\u00e9"})";
  struct Case {
    std::string fields;
    Constraint constraint;
    std::string field;
  };
  const std::vector<Case> cases = {
      {R"("response_format": {"type": "json_object"})",
       {Kind::kJsonObject, "", {}},
       "response_format.type"},
      {absl::StrCat(R"("response_format": {"type": "json_schema",
           "json_schema": {"name": "n", "description": "d", "strict": true,
                           "schema": )",
                    schema, "}}"),
       {Kind::kJsonSchema, schema, {}},
       "response_format.json_schema.schema"},
      {absl::StrCat(R"("response_format": {"type": "json_schema",
           "json_schema": {"strict": false, "schema": )",
                    schema, "}}"),
       {Kind::kJsonSchema, schema, {}},
       "response_format.json_schema.schema"},
      {absl::StrCat(R"("response_format": {"type": "json_schema", "schema": )",
                    schema, "}"),
       {Kind::kJsonSchema, schema, {}},
       "response_format.schema"},
      {absl::StrCat(R"("response_format": {"schema": )", schema,
                    R"(, "type": "json_object"})"),
       {Kind::kJsonSchema, schema, {}},
       "response_format.schema"},
      {absl::StrCat(R"("structured_outputs": {"json": )", schema, "}"),
       {Kind::kJsonSchema, schema, {}},
       "structured_outputs.json"},
      {R"("structured_outputs": {"json": "{\"a\": 1}", "regex": null})",
       {Kind::kJsonSchema, R"({"a": 1})", {}},
       "structured_outputs.json"},
      {R"("structured_outputs": {"regex": "\\d+"})",
       {Kind::kRegex, "\\d+", {}},
       "structured_outputs.regex"},
      {R"("structured_outputs": {"choice": ["a", "b"]})",
       {Kind::kChoice, "", {"a", "b"}},
       "structured_outputs.choice"},
      {R"("structured_outputs": {"grammar": "root ::= [a]"})",
       {Kind::kGrammar, "root ::= [a]", {}},
       "structured_outputs.grammar"},
      {R"("structured_outputs": {"json_object": true})",
       {Kind::kJsonObject, "", {}},
       "structured_outputs.json_object"},
      {R"("structured_outputs": {"json_object": true,
                                 "disable_any_whitespace": true})",
       {Kind::kJsonSchema, R"({"type": "object"})", {}},
       "structured_outputs.json_object"},
      {R"("structured_outputs": {"structural_tag": "{}"})",
       {Kind::kStructuralTag, "{}", {}},
       "structured_outputs.structural_tag"},
      {R"("structured_outputs": {"regex": "a", "disable_any_whitespace": true,
                                 "disable_additional_properties": false})",
       {Kind::kRegex, "a", {}},
       "structured_outputs.regex"},
      {R"("response_format": {"type": "structural_tag", "format": {"b": 1}})",
       {Kind::kStructuralTag,
        R"({"type": "structural_tag", "format": {"b": 1}})",
        {}},
       "response_format"},
      {absl::StrCat(R"("guided_decoding_backend": "a", "guided_json": )",
                    schema),
       {Kind::kJsonSchema, schema, {}},
       "guided_json"},
      {R"("guided_json": "{}")", {Kind::kJsonSchema, "{}", {}}, "guided_json"},
      {R"("guided_regex": "a|b")", {Kind::kRegex, "a|b", {}}, "guided_regex"},
      {R"("guided_choice": ["x"])",
       {Kind::kChoice, "", {"x"}},
       "guided_choice"},
      {R"("guided_grammar": "root ::= [a]")",
       {Kind::kGrammar, "root ::= [a]", {}},
       "guided_grammar"},
      {R"("regex": "Paris|London")",
       {Kind::kRegex, "Paris|London", {}},
       "regex"},
      {R"("ebnf": "root ::= [a]")",
       {Kind::kGrammar, "root ::= [a]", {}},
       "ebnf"},
      {R"("grammar": "root ::= [a]", "guided_json": null)",
       {Kind::kGrammar, "root ::= [a]", {}},
       "grammar"},
      {absl::StrCat(R"("grammar": "", "json_schema": )", schema),
       {Kind::kJsonSchema, schema, {}},
       "json_schema"},
      {R"("response_format": {"type": "text"}, "grammar": "")", {}, ""}};
  for (const Case& each : cases) {
    const ApiRequest completion = Completion(absl::StrCat(", ", each.fields));
    const auto chat = ReadChatRequest(
        absl::StrCat(R"({"messages": [{"role": "user", "content": "a"}], )",
                     each.fields, "}"));
    ASSERT_THAT(chat, IsOk()) << each.fields;
    for (const ApiRequest* request : {&completion, &*chat}) {
      EXPECT_EQ(request->generation.constraint, each.constraint) << each.fields;
      EXPECT_EQ(request->constraint_field, each.field) << each.fields;
    }
  }
}

TEST(ConstraintFieldsTest, AChatWithToolsThatMayNotBeCalledMayHaveOne) {
  const auto request = ReadChatRequest(
      R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}],
          "tool_choice": "none", "response_format": {"type": "json_object"}})");
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->generation.constraint.kind, Constraint::Kind::kJsonObject);
}

// What clients send without being told to, where it asks for nothing.
TEST(ChatRequestTest, FieldsThatChangeNothingAreTaken) {
  const std::vector<std::string> cases = {
      R"("n": 1)",
      R"("stop": [])",
      R"("stop": null)",
      R"("seed": null)",
      R"("user": "somebody")",
      R"("logit_bias": {})",
      R"("temperature": 1, "top_p": 1.0)",
      R"("frequency_penalty": 0, "presence_penalty": 0.0)",
      R"("top_k": -1, "min_p": 0, "repetition_penalty": 1)",
      R"("max_tokens": -1)",
      R"("max_tokens": -1, "max_completion_tokens": -1)",
      R"("max_tokens": null)",
      R"("logprobs": false, "top_logprobs": 0)",
      R"("logprobs": null, "top_logprobs": null)",
      R"("response_format": {"type": "text"})",
      R"("modalities": ["text"])",
      R"("stream": false, "stream_options": null)",
      R"("stream": false, "stream_options": {"include_usage": false})",
      R"("stream": true, "stream_options": {"include_usage": false,
                                            "include_obfuscation": false})",
      R"("store": false)",
      R"("metadata": {"chat": "7"})",
      R"("service_tier": "auto")",
      R"("reasoning_effort": "medium", "verbosity": "medium")",
      R"("prompt_cache_key": "a", "prompt_cache_retention": "in_memory",
         "safety_identifier": "b")",
      R"("prompt_cache_retention": "in-memory")",
      R"("tools": null, "tool_choice": null)",
      R"("tools": [], "tool_choice": "auto", "parallel_tool_calls": true)",
      R"("parallel_tool_calls": false)",
      R"("tools": [{"type": "function", "function": {"name": "a",
         "strict": false}}], "parallel_tool_calls": false)",
      R"("functions": [], "function_call": "none")"};
  for (const std::string& fields : cases) {
    const auto request = ReadChatRequest(absl::StrCat(
        R"({"messages": [{"role": "user", "content": "a"}], )", fields, "}"));
    ASSERT_THAT(request, IsOk()) << fields;
    EXPECT_FALSE(request->max_tokens.has_value()) << fields;
    EXPECT_FALSE(request->logprobs) << fields;
    EXPECT_FALSE(request->include_usage) << fields;
    EXPECT_EQ(request->n, 1) << fields;
  }
}

TEST(CompletionRequestTest, FieldsThatChangeNothingAreTaken) {
  for (const char* fields :
       {R"(, "logprobs": false)", R"(, "logprobs": null)", R"(, "echo": false)",
        R"(, "best_of": 1, "n": 1)", R"(, "suffix": null)",
        R"(, "stream_options": {"include_usage": false})"}) {
    EXPECT_FALSE(Completion(fields).logprobs) << fields;
  }
}

TEST(ChatRequestTest, RolesAreThoseThatTemplatesKnow) {
  const auto read = [](absl::string_view role) {
    return ReadChatRequest(absl::StrCat(
        R"({"messages": [{"role": "user", "content": "a"}, {"role": ")", role,
        R"(", "content": "a"}]})"));
  };
  for (const char* role :
       {"system", "developer", "user", "assistant", "tool", "function",
        "ipython"}) {
    EXPECT_THAT(read(role), IsOk()) << role;
  }
  for (const char* role : {"bot", "User", "", "user "}) {
    const auto request = read(role);
    ASSERT_FALSE(request.ok()) << role;
    const ApiError error = ToApiError(request.status());
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.param, "messages[1].role");
    EXPECT_EQ(error.message,
              absl::StrCat("messages[1].role: \"", role,
                           "\" is not served, want system, developer, user, "
                           "assistant, tool, function, ipython"));
  }
  // Long ones are cut.
  EXPECT_LT(ToApiError(read(std::string(10'000, 'x')).status()).message.size(),
            200u);
}

TEST(ChatRequestTest, MessagesAreAnArray) {
  for (const char* messages : {"\"a\"", "[]", "{}", "null", "1"}) {
    const auto request =
        ReadChatRequest(absl::StrCat("{\"messages\":", messages, "}"));
    ASSERT_FALSE(request.ok()) << messages;
    EXPECT_EQ(ToApiError(request.status()).param, "messages") << messages;
  }
}

TEST(ChatRequestTest, AMarkOfTheByteOrderIsSkipped) {
  const auto request =
      ReadChatRequest("\xEF\xBB\xBF{\"messages\": [{\"role\": \"user\"}]}");
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->conversation->messages, R"([{"role": "user"}])");
}

TEST(TextRequestTest, TokenizeTakesATextOrMessages) {
  const auto text =
      ReadTokenizeRequest(R"({"prompt": "a", "add_special_tokens": false})");
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(std::get<std::string>(text->input), "a");
  EXPECT_FALSE(text->add_special_tokens);
  const auto chat = ReadTokenizeRequest(
      R"({"messages": [{"role": "user", "content": "a"}],
          "add_generation_prompt": false})");
  ASSERT_THAT(chat, IsOk());
  EXPECT_FALSE(std::get<ChatRequest>(chat->input).add_generation_prompt);
  EXPECT_FALSE(ReadTokenizeRequest(R"({"prompt": "a", "messages": []})").ok());
  EXPECT_FALSE(ReadTokenizeRequest("{}").ok());
}

TEST(TextRequestTest, DetokenizeTakesTokens) {
  const auto request = ReadDetokenizeRequest(R"({"tokens": [1]})");
  ASSERT_THAT(request, IsOk());
  EXPECT_THAT(request->tokens, ElementsAre(1));
  EXPECT_FALSE(ReadDetokenizeRequest(R"({"tokens": 1})").ok());
  EXPECT_FALSE(ReadDetokenizeRequest(R"({"tokens": ["a"]})").ok());
}

}  // namespace
}  // namespace foretoken::gateway
