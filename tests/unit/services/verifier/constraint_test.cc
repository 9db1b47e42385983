// Sessions with a constraint, on the real backends with a tiny random model:
// the text obeys the grammar, and whatever is drafted it is that of plain
// decoding under the same grammar.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/grammar/automaton.h"
#include "common/grammar/grammar.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/cuda/cuda_backend.h"
#include "common/text/vocabulary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/verifier/core/verify_engine.h"
#include "tests/support/cuda_twin/device_twin.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/services/verifier/engine_script.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::RunSessions;
using ::foretoken::testing::StatusIs;
using grammar::Grammar;
using grammar::GrammarBuilder;
using grammar::Regexes;
using grammar::Symbol;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int32_t kVocab = 211;
constexpr TokenId kEnd = 0;

// Letters, digits, marks and a few longer tokens; most ids are no text.
std::shared_ptr<const grammar::TokenVocabulary> Words() {
  static const auto* const kept = [] {
    auto vocabulary = std::make_shared<Vocabulary>();
    vocabulary->Add(kEnd, "</s>", "</s>", TokenKind::kSpecial);
    TokenId id = 1;
    const auto add = [&](const std::string& token) {
      vocabulary->Add(id++, token, token, TokenKind::kText);
    };
    for (char c = 'a'; c <= 'z'; ++c) add(std::string(1, c));
    for (char c = '0'; c <= '9'; ++c) add(std::string(1, c));
    for (const char* token :
         {"{",     "}",      "[",   "]",  "\"",   ":",    ",",   " ",
          "ab",    "ba",     "abc", "aa", "12",   "34",   "567", "{\"",
          "\": ",  "\", \"", "\"}", "]}", ", ",   "[[",   "the", "in",
          "\"a\"", "\"b\"",  "x\"", "1]", "2, 3", "a\": "}) {
      add(token);
    }
    return new std::shared_ptr<const grammar::TokenVocabulary>(
        std::make_shared<grammar::TokenVocabulary>(vocabulary, kVocab));
  }();
  return *kept;
}

std::shared_ptr<const Grammar> Built(
    const std::function<Symbol(GrammarBuilder&)>& make,
    const grammar::GrammarLimits& limits = {}) {
  GrammarBuilder builder(limits);
  const Symbol root = make(builder);
  auto grammar = std::move(builder).Build(root);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return std::make_shared<const Grammar>(*std::move(grammar));
}

Symbol ShortObject(GrammarBuilder& b) {
  Regexes& r = b.regexes();
  const Symbol digits =
      b.Terminal(r.Repeat(r.Bytes(grammar::ByteSet::Range('0', '9')), 1, 3));
  const Symbol letters =
      b.Terminal(r.Repeat(r.Bytes(grammar::ByteSet::Range('a', 'z')), 0, 8));
  grammar::ObjectRule object;
  for (const char* name : {"\"a\": ", "\"b\": "}) {
    grammar::ObjectMember& member = object.members.emplace_back();
    member.key = b.Literal(name);
    member.required = true;
  }
  object.members[0].value = digits;
  object.members[1].value =
      b.Sequence({b.Literal("\""), letters, b.Literal("\"")});
  object.separator = b.Literal(", ");
  return b.Sequence({b.Literal("{"), b.Object(object), b.Literal("}")});
}

Symbol NestedLists(GrammarBuilder& b) {
  Regexes& r = b.regexes();
  const Symbol value = b.Declare();
  grammar::ListRule list;
  list.has_rest = true;
  list.rest = value;
  list.separator = b.Literal(", ");
  list.max = 3;
  b.AddAlternative(value,
                   {b.Terminal(r.Bytes(grammar::ByteSet::Range('0', '9')))});
  b.AddAlternative(value, {b.Literal("["), b.List(list), b.Literal("]")});
  return b.Sequence({b.Literal("["), b.List(list), b.Literal("]")});
}

Symbol LettersWithoutAa(GrammarBuilder& b) {
  Regexes& r = b.regexes();
  const grammar::Expr letters =
      r.Repeat(r.Bytes(grammar::ByteSet::Range('a', 'c')), 3, 40);
  return b.Terminal(
      r.And(letters, r.Not(r.Concat({Regexes::kAnything, r.Literal("aa"),
                                     Regexes::kAnything}))));
}

Symbol ThreeLetters(GrammarBuilder& b) {
  return b.Terminal(b.regexes().Repeat(
      b.regexes().Bytes(grammar::ByteSet::Range('a', 'b')), 3, 3));
}

std::unique_ptr<VerifyEngine> MakeEngine(bool cuda, VerifyEngineOptions options,
                                         int64_t kv_cache_bytes = 0) {
  auto weights = testing::TinyModelWeights(testing::TinyModelConfig(kVocab));
  if (cuda) {
    CudaOptions gpu;
    gpu.kv_cache_bytes = kv_cache_bytes;
    auto backend = MakeCudaBackend(*weights, MakeDeviceTwin, gpu);
    EXPECT_TRUE(backend.ok()) << backend.status();
    return std::make_unique<VerifyEngine>(options, std::move(*backend));
  }
  CpuOptions cpu;
  cpu.threads = 1;
  cpu.kv_cache_bytes = kv_cache_bytes;
  auto backend = MakeCpuBackend(std::move(weights), cpu);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return std::make_unique<VerifyEngine>(options, std::move(*backend));
}

VerifyEngineOptions WithWords() {
  VerifyEngineOptions options;
  options.vocabulary = Words();
  return options;
}

SessionRequest Request(std::shared_ptr<const Grammar> grammar,
                       std::vector<TokenId> prompt, int64_t max_tokens) {
  SessionRequest request;
  request.prompt_length = static_cast<int64_t>(prompt.size());
  request.max_length = request.prompt_length + max_tokens;
  request.tokens = std::move(prompt);
  request.stop_tokens = {kEnd};
  request.sampling.end_tokens = {kEnd};
  request.grammar = std::move(grammar);
  return request;
}

std::vector<SessionRequest> Requests(int count, float temperature) {
  const std::vector<std::shared_ptr<const Grammar>> grammars = {
      Built(ShortObject), Built(NestedLists), Built(LettersWithoutAa), nullptr};
  std::mt19937 random(count);
  std::vector<SessionRequest> requests;
  for (int i = 0; i < count; ++i) {
    std::vector<TokenId> prompt(1 + random() % 60);
    for (TokenId& token : prompt) token = random() % kVocab;
    SessionRequest request = Request(grammars[i % grammars.size()],
                                     std::move(prompt), 20 + random() % 40);
    request.cache_scope = i % 2 == 0 ? "shared" : "";
    request.sampling.temperature = temperature;
    request.sampling.seed = random();
    if (random() % 2 == 0) {
      request.sampling.top_p = 0.9f;
      request.sampling.repetition_penalty = 1.15f;
      request.sampling.frequency_penalty = 0.2f;
    }
    if (random() % 3 == 0) request.sampling.min_tokens = random() % 30;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Runs the sessions to their ends without drafts; a failure is in its status.
struct Outcome {
  std::vector<TokenId> output;
  FinishReason finish = FinishReason::kNone;
  absl::Status status;
};

std::vector<Outcome> RunPlain(VerifyEngine& engine,
                              const std::vector<SessionRequest>& requests) {
  std::vector<Outcome> runs(requests.size());
  std::map<SessionId, size_t> index;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto id = engine.Open(requests[i]);
    runs[i].status = id.status();
    if (id.ok()) index[*id] = i;
  }
  const auto take = [&](SessionId id, const std::vector<SampledToken>& tokens,
                        int64_t length, FinishReason finish) {
    Outcome& run = runs[index.at(id)];
    for (const SampledToken& token : tokens) run.output.push_back(token.token);
    run.finish = finish;
    if (finish != FinishReason::kNone) {
      EXPECT_THAT(engine.Close(id), testing::IsOk());
      return;
    }
    RoundRequest round;
    round.length = length;
    EXPECT_THAT(engine.Submit(id, round), testing::IsOk());
  };
  while (engine.HasWork()) {
    const PassReport report = engine.RunPass();
    for (const SessionFailure& failure : report.failures) {
      runs[index.at(failure.session)].status = failure.status;
    }
    for (const auto& [id, result] : report.prefilled) {
      take(id, result.tokens, result.length, result.finish);
    }
    for (const auto& [id, result] : report.rounds) {
      take(id, result.tokens, result.length, result.finish);
    }
  }
  return runs;
}

// A text that ended must match, another one be the beginning of one that does.
void ExpectObeys(const SessionRequest& request, const Outcome& run) {
  if (request.grammar == nullptr) return;
  std::string text;
  for (const TokenId token : run.output) {
    if (token == kEnd) break;
    const absl::string_view bytes = Words()->bytes(token);
    ASSERT_FALSE(bytes.empty()) << "token " << token << " after " << text;
    absl::StrAppend(&text, bytes);
  }
  grammar::Automaton automaton(request.grammar);
  const auto state = automaton.Step(automaton.start(), text);
  ASSERT_NE(state, grammar::Automaton::kDead) << text;
  if (run.finish == FinishReason::kStop) {
    EXPECT_TRUE(automaton.Accepts(state)) << text;
  }
}

struct Case {
  float temperature;
  bool cuda;
};

class ConstraintTest : public ::testing::TestWithParam<Case> {};

TEST_P(ConstraintTest, TheOutputObeysTheGrammarAndDraftsChangeNoToken) {
  const auto requests = Requests(16, GetParam().temperature);
  auto plain = MakeEngine(GetParam().cuda, WithWords());
  std::vector<std::vector<TokenId>> want;
  std::vector<FinishReason> finishes;
  int stopped = 0;
  for (const SessionRequest& request : requests) {
    const Outcome run = RunPlain(*plain, {request})[0];
    FORETOKEN_ASSERT_OK(run.status);
    ASSERT_NO_FATAL_FAILURE(ExpectObeys(request, run));
    stopped += request.grammar != nullptr && run.finish == FinishReason::kStop;
    want.push_back(run.output);
    finishes.push_back(run.finish);
  }
  EXPECT_GT(stopped, 4);
  VerifyEngineOptions options = WithWords();
  options.max_rows_per_pass = 150;
  options.prefill_chunk = 23;
  auto engine = MakeEngine(GetParam().cuda, options);
  const uint32_t seed = 3;
  const auto results = RunSessions(*engine, requests, want, 30, seed);
  int64_t accepted = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(results[i].output, want[i])
        << "request " << i << " seed " << seed;
    EXPECT_EQ(results[i].finish, finishes[i]) << "request " << i;
    accepted += results[i].accepted;
  }
  EXPECT_GT(accepted, 30);  // drafts really were taken
}

TEST_P(ConstraintTest, AReplayGoesOnWithTheSameText) {
  auto engine = MakeEngine(GetParam().cuda, WithWords());
  for (const SessionRequest& request : Requests(4, GetParam().temperature)) {
    const Outcome whole = RunPlain(*engine, {request})[0];
    FORETOKEN_ASSERT_OK(whole.status);
    for (size_t cut = 1; cut < whole.output.size(); cut += 3) {
      SessionRequest replay = request;
      replay.tokens.insert(replay.tokens.end(), whole.output.begin(),
                           whole.output.begin() + cut);
      const Outcome rest = RunPlain(*engine, {replay})[0];
      FORETOKEN_ASSERT_OK(rest.status);
      EXPECT_EQ(rest.output, std::vector<TokenId>(whole.output.begin() + cut,
                                                  whole.output.end()))
          << "from " << cut;
      EXPECT_EQ(rest.finish, whole.finish);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ConstraintTest,
                         ::testing::Values(Case{0.0f, false}, Case{1.0f, false},
                                           Case{0.0f, true}, Case{1.0f, true}),
                         [](const ::testing::TestParamInfo<Case>& param) {
                           return absl::StrCat(
                               param.param.cuda ? "cuda" : "cpu",
                               param.param.temperature > 0 ? "_sampled"
                                                           : "_greedy");
                         });

TEST(ConstraintEngineTest, PreemptionChangesNoToken) {
  const auto requests = Requests(12, 0.8f);
  auto plain = MakeEngine(false, WithWords());
  std::vector<std::vector<TokenId>> want;
  for (const SessionRequest& request : requests) {
    want.push_back(RunPlain(*plain, {request})[0].output);
  }
  // 5 pages of 32 tokens, K and V, 2 layers, 2 heads of 16, bf16.
  const int64_t page_bytes = 32 * 2 * 2 * 2 * 16 * 2;
  VerifyEngineOptions options = WithWords();
  options.admission_reserve = 1;
  auto engine = MakeEngine(false, options, 5 * page_bytes);
  const auto results = RunSessions(*engine, requests, want, 30, 9);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(results[i].output, want[i]) << "request " << i;
  }
  EXPECT_GT(engine->snapshot().totals.preemptions, 0);
}

// Nothing but the end can follow: no pass is spent to hear it.
TEST(ConstraintEngineTest, ACompleteTextEndsTheSessionWithItsLastToken) {
  auto engine = MakeEngine(false, WithWords());
  SessionRequest request = Request(Built(ThreeLetters), {5, 6, 7}, 50);
  request.sampling.temperature = 1.0f;
  request.sampling.min_tokens = 20;  // the grammar leaves no way to obey it
  for (request.sampling.seed = 0; request.sampling.seed < 5;
       ++request.sampling.seed) {
    const int64_t before = engine->snapshot().totals.passes;
    const Outcome run = RunPlain(*engine, {request})[0];
    FORETOKEN_ASSERT_OK(run.status);
    EXPECT_EQ(run.finish, FinishReason::kStop);
    ASSERT_FALSE(run.output.empty());
    std::string text;
    for (const TokenId token : run.output) {
      EXPECT_NE(token, kEnd);
      absl::StrAppend(&text, Words()->bytes(token));
    }
    EXPECT_EQ(text.size(), 3u) << text;
    EXPECT_EQ(engine->snapshot().totals.passes - before,
              static_cast<int64_t>(run.output.size()));
  }
}

TEST(ConstraintEngineTest, AForbiddenDraftIsNeverTaken) {
  auto engine = MakeEngine(false, WithWords());
  const SessionRequest request =
      Request(Built(LettersWithoutAa), {5, 6, 7}, 30);
  const Outcome plain = RunPlain(*engine, {request})[0];
  ASSERT_GT(plain.output.size(), 3u);
  const SessionId id = engine->Open(request).value();
  ASSERT_THAT(engine->RunPass().prefilled, SizeIs(1));
  // A digit, no text at all, and children of theirs that would be right.
  const TokenId digit = 27, no_text = 200, next = plain.output[1];
  ASSERT_EQ(Words()->bytes(digit), "0");
  RoundRequest round;
  round.length = 4;
  round.tree =
      TokenTree::Create({digit, no_text, kEnd, next, next, next, digit},
                        {-1, -1, -1, 0, 1, 2, 3})
          .value();
  FORETOKEN_ASSERT_OK(engine->Submit(id, round));
  const PassReport report = engine->RunPass();
  EXPECT_THAT(report.failures, IsEmpty());
  ASSERT_THAT(report.rounds, SizeIs(1));
  const RoundResult& result = report.rounds[0].result;
  EXPECT_THAT(result.path, IsEmpty());
  ASSERT_THAT(result.tokens, SizeIs(1));
  EXPECT_EQ(result.tokens[0].token, next);
}

TEST(ConstraintEngineTest, WithoutAVocabularyAConstraintIsRefused) {
  auto engine = MakeEngine(false, {});
  const auto grammar = Built(ThreeLetters);
  EXPECT_THAT(engine->Open(Request(grammar, {1, 2}, 10)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no tokenizer")));
  EXPECT_EQ(engine->snapshot().sessions, 0);
  const Outcome plain = RunPlain(*engine, {Request(nullptr, {1, 2}, 10)})[0];
  FORETOKEN_EXPECT_OK(plain.status);
}

TEST(ConstraintEngineTest, ATextThatCannotGoOnEndsItsOwnSessionAlone) {
  // No token has the byte 1.
  const auto costly = Built([](GrammarBuilder& b) {
    return b.Sequence(
        {b.Terminal(b.regexes().Repeat(
             b.regexes().Bytes(grammar::ByteSet::Range('a', 'b')), 1, 5)),
         b.Literal("\x01")});
  });
  auto engine = MakeEngine(false, WithWords());
  const SessionRequest good = Request(Built(NestedLists), {5, 6, 7}, 300);
  const SessionRequest free = Request(nullptr, {8, 9}, 100);
  const std::vector<TokenId> want = RunPlain(*engine, {good})[0].output;
  const std::vector<TokenId> want_free = RunPlain(*engine, {free})[0].output;
  SessionRequest bad = Request(costly, {5, 6, 7}, 400);
  bad.sampling.temperature = 1.0f;
  const std::vector<Outcome> runs = RunPlain(*engine, {good, bad, free});
  EXPECT_THAT(runs[1].status, StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("constraint")));
  FORETOKEN_EXPECT_OK(runs[0].status);
  EXPECT_EQ(runs[0].output, want);
  FORETOKEN_EXPECT_OK(runs[2].status);
  EXPECT_EQ(runs[2].output, want_free);
  EXPECT_EQ(engine->snapshot().sessions, 0);
}

TEST(ConstraintEngineTest, SessionsUnderAsManyGrammarsAsTheMemoryCannotHold) {
  VerifyEngineOptions options = WithWords();
  options.grammar_bytes = int64_t{4} << 20;
  auto tight = MakeEngine(false, options);
  auto roomy = MakeEngine(false, WithWords());
  const auto requests = Requests(12, 1.0f);
  const auto want = RunPlain(*roomy, requests);
  const auto got = RunPlain(*tight, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    FORETOKEN_EXPECT_OK(got[i].status);
    EXPECT_EQ(got[i].output, want[i].output) << "request " << i;
  }
}

}  // namespace
}  // namespace foretoken::verifier
