#include "services/orchestrator/core/output_text.h"

#include <utility>

#include "common/base/check.h"

namespace foretoken::orchestrator {

OutputText::OutputText(const Tokenizer* tokenizer, StopMatcher stop_matcher,
                       int64_t unchecked_tokens)
    : tokenizer_(tokenizer),
      stop_matcher_(std::move(stop_matcher)),
      unchecked_tokens_(unchecked_tokens) {
  if (tokenizer_ != nullptr) {
    detokenizer_.emplace(*tokenizer_, Detokenizer::Start::kBehindPrompt);
  }
}

void OutputText::PushSilent() {
  // Bytes that wait for the rest of their character count as written.
  const size_t pending = detokenizer_ ? detokenizer_->pending().size() : 0;
  held_.push_back(text_bytes_ + pending);
}

bool OutputText::Push(TokenId token) {
  std::string text;
  // A model may have more rows than its tokenizer has tokens; those write
  // nothing.
  if (detokenizer_.has_value() && token < tokenizer_->vocab_size()) {
    const absl::Status pushed = detokenizer_->Push(token, text);
    FORETOKEN_CHECK(pushed.ok());  // inside the vocabulary
  }
  text_bytes_ += text.size();
  PushSilent();
  const size_t before = released_.size();
  bool stopped = false;
  if (unchecked_tokens_ > 0) {
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
  if (detokenizer_.has_value()) detokenizer_->Flush(text);
  const size_t before = released_.size();
  const bool stopped = stop_matcher_.Push(text, released_);
  stop_matcher_.Flush(released_);
  released_bytes_ += released_.size() - before;
  if (stopped) {
    ReleaseTokens();
  } else {
    released_tokens_ += static_cast<int64_t>(held_.size());
    held_.clear();
  }
  return stopped;
}

void OutputText::ReleaseTokens() {
  while (!held_.empty() && held_.front() <= released_bytes_) {
    held_.pop_front();
    ++released_tokens_;
  }
}

std::string OutputText::TakeText() { return std::exchange(released_, {}); }

int64_t OutputText::TakeTokens() { return std::exchange(released_tokens_, 0); }

}  // namespace foretoken::orchestrator
