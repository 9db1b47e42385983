#include "tools/cli/chat/chat_session.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/text/hf_tokenizer.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::cli {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Lines : public LineSource {
 public:
  explicit Lines(std::deque<std::string> lines) : lines_(std::move(lines)) {}
  absl::StatusOr<std::optional<std::string>> Next() override {
    if (lines_.empty()) return std::nullopt;
    std::string line = std::move(lines_.front());
    lines_.pop_front();
    if (line == "<bad>") return absl::InvalidArgumentError("bad line");
    return line;
  }

 private:
  std::deque<std::string> lines_;
};

// Answers every request with "an" and "th", in two deltas.
class ChatSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = MakeHfTokenizer(testing::TinyTokenizerJson(), {});
    FORETOKEN_ASSERT_OK(tokenizer);
    // Roles by their first letter.
    auto chat = ModelChat::Create(
        *std::move(tokenizer),
        "{% for m in messages %}{{ m.role[0] }} {{ m.content }} {% endfor %}"
        "{{ raise_exception('no q') if messages[-1].content == 'q' }}");
    FORETOKEN_ASSERT_OK(chat);
    chat_ = *std::move(chat);
  }

  absl::Status Run(std::deque<std::string> typed, ChatOptions options = {}) {
    options.request.has_seed = options.request.sampling.seed != 0;
    ChatSession::Outside outside;
    outside.generate =
        [this](GenerationRequest request,
               absl::FunctionRef<absl::Status(const GenerationDelta&)> on_delta)
        -> absl::StatusOr<GenerationSummary> {
      prompts_.push_back(chat_->tokenizer().Decode(request.prompt).value());
      requests_.push_back(request);
      for (const auto& [text, id] :
           {std::pair("an", TokenId{35}), std::pair("th", TokenId{31})}) {
        GenerationDelta delta;
        delta.text = text;
        delta.token_ids = {id};
        delta.drafters = {DrafterId::kCrest};
        FORETOKEN_RETURN_IF_ERROR(on_delta(delta));
      }
      FORETOKEN_RETURN_IF_ERROR(failure_);
      GenerationSummary summary;
      summary.mode = request.mode.has_value() ? request.mode->ToString() : "?";
      summary.seed = request.sampling.seed;
      summary.completion_tokens = 2;
      summary.rounds = 1;
      summary.accepted = 1;
      summary.by_drafter = {{DrafterId::kCrest, 3, 1, 1, 0}};
      return summary;
    };
    outside.write = [this](absl::string_view text) {
      written_ += std::string(text);
      return write_status_;
    };
    outside.note = [this](const std::string& note) { notes_.push_back(note); };
    outside.interrupted = [this] { return interrupted_; };
    outside.draw_seed = [this] { return next_seed_++; };
    Lines lines(std::move(typed));
    return ChatSession(*chat_, std::move(options), lines, std::move(outside))
        .Run();
  }

  std::unique_ptr<ModelChat> chat_;
  std::vector<std::string> prompts_;
  std::vector<GenerationRequest> requests_;
  std::string written_;
  std::vector<std::string> notes_;
  absl::Status failure_;
  absl::Status write_status_;
  bool interrupted_ = false;
  uint64_t next_seed_ = 100;
};

TEST_F(ChatSessionTest, EveryTurnSeesTheOnesBefore) {
  ChatOptions options;
  options.system = "x";
  FORETOKEN_ASSERT_OK(Run({"hi", "", "so", "/clear", "again"}, options));
  EXPECT_THAT(prompts_, ElementsAre("s x u hi ", "s x u hi a anth u so ",
                                    "s x u again "));
  EXPECT_EQ(written_, "anth\nanth\nanth\n");
}

TEST_F(ChatSessionTest, AnInterruptedAnswerEndsAndStaysInTheConversation) {
  interrupted_ = true;
  FORETOKEN_ASSERT_OK(Run({"hi", "so"}));
  EXPECT_EQ(written_, "an\nan\n");
  EXPECT_THAT(prompts_, ElementsAre("u hi ", "u hi a an u so "));
  EXPECT_THAT(notes_, ElementsAre("stopped", "stopped"));
}

TEST_F(ChatSessionTest, AFailedAnswerIsForgottenWithItsMessage) {
  failure_ = absl::UnavailableError("the server is gone");
  FORETOKEN_ASSERT_OK(Run({"hi", "q", "so"}));
  EXPECT_THAT(prompts_, ElementsAre("u hi ", "u so "));
  EXPECT_THAT(notes_, ElementsAre("no answer: the server is gone", "no q",
                                  "no answer: the server is gone"));
}

TEST_F(ChatSessionTest, AnOutputThatCannotBeWrittenEndsTheChat) {
  write_status_ = absl::DataLossError("stdout: cannot write");
  EXPECT_THAT(Run({"hi", "so"}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("stdout")));
  EXPECT_THAT(prompts_, SizeIs(1));
}

TEST_F(ChatSessionTest, ModeAndSeedHoldForTheAnswersThatFollow) {
  ChatOptions options;
  options.request.sampling.seed = 5;
  FORETOKEN_ASSERT_OK(
      Run({"a", "/mode ngram_trie", "/seed 9", "b", "/seed", "c", "d",
           "/mode nonsense", "/seed -1", "/mode", "e"},
          options));
  ASSERT_THAT(requests_, SizeIs(5));
  std::vector<uint64_t> seeds;
  for (const auto& request : requests_) seeds.push_back(request.sampling.seed);
  EXPECT_THAT(seeds, ElementsAre(5, 9, 100, 101, 102));
  EXPECT_FALSE(requests_[0].mode.has_value());
  EXPECT_EQ(requests_[1].mode->name(), "ngram_trie");
  EXPECT_EQ(requests_[4].mode->name(), "ngram_trie");
  EXPECT_THAT(notes_, ::testing::Contains("mode ngram_trie").Times(2));
  EXPECT_THAT(notes_, ::testing::Contains(HasSubstr("nonsense")));
  EXPECT_THAT(notes_, ::testing::Contains(HasSubstr("/seed: want")));
}

TEST_F(ChatSessionTest, CommandsAnswerWithoutTheModel) {
  FORETOKEN_ASSERT_OK(Run(
      {"/stats", "hi", "/stats", "/help", "/nope", "<bad>", "/quit", "so"}));
  EXPECT_THAT(prompts_, SizeIs(1));
  EXPECT_THAT(
      notes_,
      ElementsAre(HasSubstr("0 answers of 0 tokens"),
                  HasSubstr("2 tokens, 0.0 tokens/s, 2.00 tokens a round"),
                  ::testing::AllOf(HasSubstr("1 answers of 2 tokens"),
                                   HasSubstr("2.00 tokens a round"),
                                   HasSubstr("crest: 3 drafted, 1 accepted")),
                  HasSubstr("/seed"), HasSubstr("no such command: /nope"),
                  "bad line"));
}

TEST_F(ChatSessionTest, DraftersAreShownWithALegend) {
  ChatOptions options;
  options.show_drafters = true;
  options.colours = true;
  FORETOKEN_ASSERT_OK(Run({"hi"}, options));
  EXPECT_EQ(written_, "\x1b[38;5;161manth\x1b[39m\n");
  EXPECT_EQ(notes_[0], "crest 2");
}

TEST_F(ChatSessionTest, ControlTokensThatAreTypedStayText) {
  FORETOKEN_ASSERT_OK(Run({"</s>"}));
  // The vocabulary has the letter, and neither brackets nor slash.
  EXPECT_THAT(requests_.at(0).prompt, ::testing::Not(::testing::Contains(1)));
}

TEST_F(ChatSessionTest, NothingTypedIsNothingDone) {
  FORETOKEN_ASSERT_OK(Run({}));
  EXPECT_THAT(notes_, IsEmpty());
  EXPECT_EQ(written_, "");
}

}  // namespace
}  // namespace foretoken::cli
