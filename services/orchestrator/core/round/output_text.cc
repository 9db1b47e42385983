#include "services/orchestrator/core/round/output_text.h"

#include <utility>

#include "absl/strings/match.h"
#include "common/base/check.h"
#include "common/text/utf8.h"

namespace foretoken::orchestrator {
namespace {

constexpr size_t kReplacementBytes = sizeof(kReplacementCharacter) - 1;

}  // namespace

OutputText::OutputText(const Tokenizer* tokenizer, StopMatcher stop_matcher,
                       int64_t unchecked_tokens)
    : tokenizer_(tokenizer),
      stop_matcher_(std::move(stop_matcher)),
      unchecked_tokens_(unchecked_tokens) {
  if (tokenizer_ != nullptr) {
    detokenizer_.emplace(*tokenizer_, Detokenizer::Start::kBehindPrompt);
  }
}

void OutputText::Hold() {
  const size_t waiting = detokenizer_ ? detokenizer_->pending().size() : 0;
  // Pending bytes become text once their character is whole, or else
  // replacement characters, whose number depends on the tokenizer's rules; both
  // ends are kept until it is known which.
  const bool by_part =
      tokenizer_ != nullptr && tokenizer_->decode_rules().malformed ==
                                   DecodeRules::Malformed::kMaximalSubpart;
  const size_t replacements = by_part ? (waiting > 0 ? 1 : 0) : waiting;
  held_.push_back(
      {text_bytes_ + waiting, text_bytes_ + replacements * kReplacementBytes});
  waiting_tokens_ = waiting > 0 ? waiting_tokens_ + 1 : 0;
}

// `text` was written by a push before which `waiting` bytes were pending.
void OutputText::Settle(absl::string_view waiting, absl::string_view text) {
  if (text.empty()) return;
  const bool whole = absl::StartsWith(text, waiting);
  for (size_t i = held_.size() - waiting_tokens_; i < held_.size(); ++i) {
    held_[i].whole = whole ? held_[i].whole : held_[i].replaced;
  }
  waiting_tokens_ = 0;
}

void OutputText::PushSilent() { Hold(); }

bool OutputText::Push(TokenId token) {
  std::string text;
  // A model may have more rows than its tokenizer has tokens; those write
  // nothing.
  if (detokenizer_.has_value() && token < tokenizer_->vocab_size()) {
    const std::string waiting(detokenizer_->pending());
    const absl::Status pushed = detokenizer_->Push(token, text);
    FORETOKEN_CHECK(pushed.ok());  // inside the vocabulary
    Settle(waiting, text);
  }
  text_bytes_ += text.size();
  Hold();
  const size_t before = released_.size();
  bool stopped = false;
  if (unchecked_tokens_ > 0) {
    // Until min_tokens are out, stop strings do not end the output; they are
    // still text.
    --unchecked_tokens_;
    released_ += text;
  } else {
    stopped = stop_matcher_.Push(text, released_);
  }
  released_bytes_ += released_.size() - before;
  ReleaseTokens();
  return stopped;
}

bool OutputText::Finish() {
  std::string text;
  if (detokenizer_.has_value()) {
    const std::string waiting(detokenizer_->pending());
    detokenizer_->Flush(text);
    Settle(waiting, text);
  }
  const size_t before = released_.size();
  const bool stopped = stop_matcher_.Push(text, released_);
  stop_matcher_.Flush(released_);
  released_bytes_ += released_.size() - before;
  // After a stop only what lies before the string is shown. At a plain end all
  // tokens are, those without text included.
  if (stopped) {
    ReleaseTokens();
  } else {
    released_tokens_ += static_cast<int64_t>(held_.size());
    held_.clear();
  }
  return stopped;
}

void OutputText::ReleaseTokens() {
  // Invariant: a token is shown once all bytes that it contributed to are;
  // those after the last whole character wait.
  while (held_.size() > waiting_tokens_ &&
         held_.front().whole <= released_bytes_) {
    held_.pop_front();
    ++released_tokens_;
  }
}

std::string OutputText::TakeText() { return std::exchange(released_, {}); }

int64_t OutputText::TakeTokens() { return std::exchange(released_tokens_, 0); }

}  // namespace foretoken::orchestrator
