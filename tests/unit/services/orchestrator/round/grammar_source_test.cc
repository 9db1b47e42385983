#include "services/orchestrator/core/round/grammar_source.h"

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/grammar/compile.h"
#include "common/grammar/token_trie.h"
#include "gmock/gmock.h"
#include "services/orchestrator/core/drafters/mode_sources.h"
#include "services/orchestrator/core/round/decode_loop.h"
#include "tests/support/fake_backend.h"
#include "tests/support/in_process_verifier.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::orchestrator {
namespace {

using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::IsEmpty;
using ::testing::Lt;

using Tokens = std::vector<TokenId>;

class GrammarSourceTest : public ::testing::Test {
 protected:
  GrammarSourceTest()
      : tokenizer_(Tokenizer::Load(dir_.Write("tokenizer.json",
                                              testing::TinyTokenizerJson()))
                       .value()),
        vocabulary_(grammar::TokenVocabulary::Of(tokenizer_)) {}

  std::shared_ptr<const grammar::Grammar> Compiled(
      const std::string& regex) const {
    return grammar::Compile({Constraint::Kind::kRegex, regex, {}}).value();
  }

  std::shared_ptr<grammar::LiveGrammar> Live(const std::string& regex) const {
    return std::make_shared<grammar::LiveGrammar>(Compiled(regex), vocabulary_);
  }

  Tokens Ids(const std::string& text) const { return tokenizer_->Encode(text); }

  testing::TempDir dir_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const grammar::TokenVocabulary> vocabulary_;
};

TEST_F(GrammarSourceTest, BytesAreSplitAsInTheWholeText) {
  std::mt19937 random(3);
  const std::string letters = "thexainr an";
  int joined = 0;
  for (int run = 0; run < 2000; ++run) {
    std::string text;
    while (text.size() < 12) text += letters[random() % letters.size()];
    const Tokens whole = Ids(text);
    // At a border of the whole text's tokens they are its own.
    const size_t border = random() % whole.size();
    const Tokens before(whole.begin(), whole.begin() + border);
    size_t bytes = 0;
    for (const TokenId token : before) {
      bytes += tokenizer_->TokenBytes(token).size();
    }
    ASSERT_EQ(TokensAfter(*tokenizer_, before, text.substr(bytes)),
              Tokens(whole.begin() + border, whole.end()))
        << text << " at " << bytes;
    // Within a token they are split alone.
    const Tokens single = {Ids(text.substr(0, 1))};
    const std::string rest = text.substr(1);
    const Tokens after = TokensAfter(*tokenizer_, single, rest);
    std::string bytes_after;
    for (const TokenId token : after) {
      absl::StrAppend(&bytes_after, tokenizer_->TokenBytes(token));
    }
    ASSERT_EQ(bytes_after, rest);
    joined += tokenizer_->TokenBytes(whole[0]).size() > 1;
  }
  EXPECT_THAT(joined, Gt(100));
}

TEST_F(GrammarSourceTest, ACharacterThatIsNotCompleteIsLeftOut) {
  EXPECT_EQ(TokensAfter(*tokenizer_, {}, "a\xC3"), Ids("a"));
  EXPECT_EQ(TokensAfter(*tokenizer_, {}, "a\xC3\xA9"), Ids("a\xC3\xA9"));
  EXPECT_THAT(TokensAfter(*tokenizer_, {}, "\xC3"), IsEmpty());
  EXPECT_THAT(TokensAfter(*tokenizer_, {}, ""), IsEmpty());
  // The rest of one is whole.
  EXPECT_THAT(TokensAfter(*tokenizer_, Tokens{29},
                          "\xA9"
                          "b"),
              ElementsAre(30, Ids("b")[0]));
}

TEST_F(GrammarSourceTest, DraftsAChainOfWhatMustFollow) {
  const auto constraint = std::make_shared<grammar::ConstrainedText>(
      Live("the inner (ax|bx)than"), Tokens{1});
  GrammarSource source(constraint, *tokenizer_, MonotonicClock());
  EXPECT_EQ(source.id(), DrafterId::kGrammar);
  Tokens text = {0, 5};
  DraftOpen open;
  open.prompt_length = 2;
  source.Start(open, text);
  const auto ask = [&](int32_t max_nodes) {
    DraftRound round;
    round.max_nodes = max_nodes;
    round.length = static_cast<int64_t>(text.size());
    source.Ask(round, text);
    SourceDraft draft;
    draft.tree.Add(1, kRootParent, 1.0f);  // goes
    EXPECT_EQ(
        source.Collect(absl::InfiniteFuture(), draft),
        max_nodes > 0 ? DraftOutcome::kAnswered : DraftOutcome::kNotAsked);
    return draft.tree;
  };
  const auto commit = [&](const std::string& bytes) {
    const Tokens ids = Ids(bytes);
    constraint->Append(ids);
    text.insert(text.end(), ids.begin(), ids.end());
    FORETOKEN_ASSERT_OK(constraint->status());
  };
  const DraftTree first = ask(64);
  EXPECT_EQ(first.tokens, Ids("the inner "));
  for (int32_t node = 0; node < first.size(); ++node) {
    EXPECT_EQ(first.parents[node], node - 1);
    EXPECT_THAT(first.probs[node],
                Lt(node == 0 ? 1.0f : first.probs[node - 1]));
  }
  // The last token may go on in the model's own text.
  EXPECT_THAT(first.probs[first.size() - 1] / first.probs[first.size() - 2],
              Lt(0.8f));
  const DraftTree cut = ask(3);
  EXPECT_EQ(cut.tokens, Tokens(first.tokens.begin(), first.tokens.begin() + 3));
  EXPECT_EQ(ask(0).size(), 0);
  commit("the i");
  EXPECT_EQ(ask(64).tokens, Ids("nner "));
  commit("nner ");
  EXPECT_EQ(ask(64).size(), 0);  // a or b
  commit("a");
  EXPECT_EQ(ask(64).tokens, Ids("xthan"));
  commit("xthan");
  EXPECT_EQ(ask(64).size(), 0);
}

// Gives sessions the compiled grammar, as a verifier's transport does.
class WithGrammar final : public Verifier {
 public:
  WithGrammar(testing::EngineDriver& driver,
              std::shared_ptr<const grammar::Grammar> grammar)
      : verifier_(driver), grammar_(std::move(grammar)) {}

  absl::StatusOr<PrefillResult> Open(SessionRequest request,
                                     absl::Span<const TokenId> text) override {
    request.grammar = grammar_;
    return verifier_.Open(std::move(request), text);
  }
  absl::StatusOr<RoundResult> Round(RoundRequest request,
                                    absl::Span<const TokenId> text) override {
    return verifier_.Round(std::move(request), text);
  }
  void Close() override { verifier_.Close(); }

 private:
  testing::InProcessVerifier verifier_;
  const std::shared_ptr<const grammar::Grammar> grammar_;
};

TEST_F(GrammarSourceTest, AutoAloneDraftsWhatIsForcedAndWritesWhatOffWrites) {
  const std::string regex = "((the|in) inner thexa than (a|b)+ )+";
  TargetInfo target;
  target.vocab_size = testing::kTinyVocabulary;
  target.max_positions = 4096;
  target.eos_tokens = {1};
  std::map<std::string, int64_t> accepted;  // by mode
  const auto run = [&](const std::string& mode, uint64_t seed) {
    GenerationRequest request;
    request.prompt = {0, 5, static_cast<TokenId>(2 + seed)};
    request.max_tokens = 120;
    request.constraint = {Constraint::Kind::kRegex, regex, {}};
    request.sampling.temperature = seed % 2 == 0 ? 0.0f : 0.9f;
    request.sampling.seed = seed;
    ModeSources made = MakeSources(Mode::Parse(mode).value(), {}).value();
    DraftingOptions options;
    options.economical = made.economical;
    auto loop = DecodeLoop::Create(request, target, tokenizer_.get(),
                                   std::move(made.sources), std::move(options),
                                   mode == "off" ? nullptr : Live(regex))
                    .value();
    verifier::VerifyEngineOptions engine_options;
    engine_options.vocabulary = vocabulary_;
    verifier::VerifyEngine engine(
        engine_options,
        std::make_unique<testing::FakeBackend>(testing::FakeBackendOptions()));
    testing::EngineDriver driver(engine);
    WithGrammar verifier(driver, Compiled(regex));
    Tokens tokens;
    std::vector<DrafterId> drafters;
    FORETOKEN_EXPECT_OK(
        Generate(*loop, verifier, [&](const GenerationDelta& delta) {
          tokens.insert(tokens.end(), delta.token_ids.begin(),
                        delta.token_ids.end());
          drafters.insert(drafters.end(), delta.drafters.begin(),
                          delta.drafters.end());
          return absl::OkStatus();
        }));
    int64_t credited = 0;
    for (const DrafterId drafter : drafters) {
      credited += drafter == DrafterId::kGrammar;
    }
    int64_t counted = 0;
    for (const DrafterCounts& counts : loop->summary().by_drafter) {
      if (counts.id == DrafterId::kGrammar) counted += counts.accepted;
    }
    EXPECT_EQ(credited, counted);
    accepted[mode] += loop->summary().accepted;
    return std::pair(tokens, credited);
  };
  int64_t forced = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const auto off = run("off", seed);
    EXPECT_EQ(off.second, 0);
    const auto all = run("auto", seed);
    EXPECT_EQ(all.first, off.first) << "seed " << seed;
    forced += all.second;
    for (const char* mode : {"prompt_lookup", "lookahead:window=5,ngram=3"}) {
      const auto named = run(mode, seed);
      EXPECT_EQ(named.first, off.first) << mode << ", seed " << seed;
      EXPECT_EQ(named.second, 0) << mode;
    }
  }
  // Its window holds tokens that the constraint forbids.
  EXPECT_THAT(accepted["lookahead:window=5,ngram=3"], Gt(20));
  EXPECT_THAT(forced, Gt(50));
}

}  // namespace
}  // namespace foretoken::orchestrator
