#include "tests/soak/client/soak.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/speculation/modes.h"

namespace foretoken::soak {
namespace {

constexpr size_t kPromptBytes = 400;

// Texts of 50 to some hundred tokens: forced parts, choices, lists, recursion
// and strings that may hold anything.
constexpr char kSchema[] = R"({
  "type": "array", "minItems": 2, "maxItems": 6,
  "items": {
    "type": "object",
    "properties": {
      "name": {"type": "string", "minLength": 1, "maxLength": 24},
      "kind": {"enum": ["function", "class", "module", "variable"]},
      "line": {"type": "integer", "minimum": 1, "maximum": 99999},
      "parents": {"type": "array", "items": {"$ref": "#/$defs/id"},
                  "maxItems": 3},
      "public": {"type": "boolean"}
    },
    "required": ["name", "kind", "line", "parents"],
    "additionalProperties": false
  },
  "$defs": {"id": {"type": "string", "pattern": "^[a-z_]{1,12}$"}}
})";
constexpr char kRegex[] = "([A-Za-z]{1,9}[ ,]){12,60}[a-z]{1,9}\\.";
constexpr char kGrammar[] = R"gbnf(
root ::= "(" ws sum (";" ws sum){3,12} ")"
sum ::= term ((" + " | " - ") term)*
term ::= [a-z] | [0-9]{1,4} | "(" sum ")" | "max(" sum ", " sum ")"
ws ::= [ ]?
)gbnf";

v1::Constraint ConstraintOf(size_t number) {
  v1::Constraint constraint;
  switch (number % 4) {
    case 0:
      constraint.set_json_schema(kSchema);
      break;
    case 1:
      constraint.set_regex(kRegex);
      break;
    case 2:
      constraint.set_grammar(kGrammar);
      break;
    default:
      constraint.set_json_object(true);
      break;
  }
  return constraint;
}

// From the line after `at`; empty where the text ends before.
std::string PieceAt(const std::string& text, size_t at) {
  const size_t begin = text.find('\n', at);
  if (begin == std::string::npos || begin + kPromptBytes >= text.size()) {
    return "";
  }
  const size_t end = text.find('\n', begin + kPromptBytes);
  if (end == std::string::npos || end - begin > 4 * kPromptBytes) return "";
  return text.substr(begin + 1, end - begin);
}

absl::StatusOr<std::vector<Work>> MakeWork(const SoakOptions& options,
                                           int count) {
  std::string text;
  for (const std::string& path : options.texts) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
    absl::StrAppend(&text, content, "\n");
  }
  std::vector<Work> all;
  const size_t step = std::max(kPromptBytes, text.size() / (count + 1));
  for (size_t at = 0; at < text.size() && static_cast<int>(all.size()) < count;
       at += step) {
    Work work;
    work.prompt = PieceAt(text, at);
    if (work.prompt.empty()) continue;
    if (all.size() % 2 == 1) work.temperature = 0.8f;
    work.seed = options.seed * 1'000'003 + all.size();
    // One at either temperature.
    const size_t pair = all.size() / 2;
    if (options.constrained_share > 0 &&
        pair % options.constrained_share == 0) {
      work.constraint = ConstraintOf(pair / options.constrained_share);
    }
    all.push_back(std::move(work));
  }
  if (all.empty()) {
    return absl::InvalidArgumentError(
        "the texts hold no prompt: want files of several KB of lines");
  }
  return all;
}

}  // namespace

Outcome Run(const testing::WireClient& client, const Work& work,
            const std::string& mode, int max_tokens, absl::Time deadline,
            const std::function<bool(size_t)>& keep_on) {
  Outcome outcome;
  v1::GenerateRequest request;
  request.set_text(work.prompt);
  request.set_max_tokens(max_tokens);
  request.set_cache_scope(work.cache_scope);
  request.mutable_sampling()->set_temperature(work.temperature);
  request.mutable_sampling()->set_seed(work.seed);
  if (work.constraint.kind_case() != v1::Constraint::KIND_NOT_SET) {
    *request.mutable_constraint() = work.constraint;
  }
  const absl::StatusOr<Mode> spec = Mode::Parse(mode);
  outcome.status = spec.status();
  if (spec.ok()) {
    outcome.status = rpc::ToProto(*spec, request.mutable_speculation());
  }
  if (!outcome.status.ok()) return outcome;
  absl::StatusOr<v1::GenerateResult> result =
      client.Generate(request, deadline, [&](const v1::GenerateDelta& delta) {
        outcome.tokens.insert(outcome.tokens.end(), delta.token_ids().begin(),
                              delta.token_ids().end());
        return keep_on(outcome.tokens.size());
      });
  outcome.status = result.status();
  if (result.ok()) outcome.result = *std::move(result);
  return outcome;
}

Outcome RunWhole(const testing::WireClient& client, const Work& work,
                 const std::string& mode, int max_tokens) {
  return Run(client, work, mode, max_tokens, MonotonicNow() + absl::Minutes(5),
             [](size_t) { return true; });
}

absl::StatusOr<Setup> Prepare(const SoakOptions& options, int count) {
  Setup setup;
  FORETOKEN_ASSIGN_OR_RETURN(
      setup.client,
      testing::WireClient::Connect(options.server, options.channel));
  FORETOKEN_ASSIGN_OR_RETURN(setup.works, MakeWork(options, count));
  for (const Work& work : setup.works) {
    Outcome outcome = RunWhole(*setup.client, work, "off", options.max_tokens);
    FORETOKEN_RETURN_IF_ERROR(outcome.status);
    setup.references.push_back(std::move(outcome.tokens));
  }
  return setup;
}

void WhileTrue(const std::function<bool(int)>& go_on, int concurrency,
               const std::function<void(int)>& work) {
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < concurrency; ++t) {
    threads.emplace_back([&] {
      for (int i = next++; go_on(i); i = next++) work(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace foretoken::soak
