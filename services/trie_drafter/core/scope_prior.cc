#include "services/trie_drafter/core/scope_prior.h"

#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <string>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/token_range.h"
#include "common/drafting/ngram_counts.h"
#include "common/drafting/prior_builder.h"

namespace foretoken::trie_drafter {
namespace {

constexpr int kNice = 10;  // requests go first
// A compaction counts everything again, so that the n-th token is counted about
// this many times in all.
constexpr size_t kRecounts = 8;

// Length of the queue from which Submit drops the scopes that were evicted
// meanwhile.
constexpr size_t kManyDue = 256;

// The part of an output that a stored record keeps.
absl::Span<const TokenId> Kept(absl::Span<const TokenId> output) {
  return output.last(std::min(output.size(), kMaxRecordTokens));
}

}  // namespace

bool ScopePrior::InVocabulary(absl::Span<const TokenId> output) const {
  return AllInVocabulary(output, options_.vocab_size);
}

size_t ScopePrior::InHistory() const {
  return history_ == nullptr ? 0 : static_cast<size_t>(history_->Tokens());
}

// The newest tokens are still in the scope's history, which drafts from them
// itself: the prior counts only what has left it.
size_t ScopePrior::Countable(size_t in_history) const {
  return text_.size() - std::min(text_.size(), in_history);
}

void ScopePrior::DropOldest(size_t in_history) {
  const size_t limit = static_cast<size_t>(options_.max_tokens) + in_history;
  if (text_.size() <= limit) return;
  const size_t excess = text_.size() - limit;
  text_.erase(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(excess));
  counted_ -= std::min(counted_, excess);
}

// due_ stays set until Compact begins, so that a scope is queued at most once.
bool ScopePrior::MarkDue(size_t in_history, size_t least) {
  if (due_ || Countable(in_history) < counted_ + least) return false;
  due_ = true;
  return true;
}

ScopePrior::Added ScopePrior::Add(absl::Span<const TokenId> output) {
  Added added;
  output = Kept(output);
  if (output.empty() || !InVocabulary(output)) return added;
  // Before mu_ is taken: the history has a lock of its own.
  const size_t in_history = InHistory();
  absl::MutexLock lock(&mu_);
  text_.insert(text_.end(), output.begin(), output.end());
  text_.push_back(kDocumentBorder);
  DropOldest(in_history);
  added.due =
      MarkDue(in_history, std::max(static_cast<size_t>(options_.compact_every),
                                   counted_ / kRecounts));
  // A batch becomes one record: hand it out before it would exceed the limit.
  if (batch_tokens_ + output.size() > kMaxRecordTokens) {
    added.batch.swap(batch_);
    batch_tokens_ = 0;
  }
  batch_.emplace_back(output.begin(), output.end());
  batch_tokens_ += output.size();
  return added;
}

ScopePrior::Texts ScopePrior::TakeBatch() {
  absl::MutexLock lock(&mu_);
  batch_tokens_ = 0;
  return std::exchange(batch_, {});
}

bool ScopePrior::Restore(const Texts& texts, const Texts& outputs) {
  std::vector<TokenId> stored;
  const auto append = [this, &stored](const std::vector<TokenId>& one) {
    if (!InVocabulary(one)) return;
    stored.insert(stored.end(), one.begin(), one.end());
    stored.push_back(kDocumentBorder);
  };
  // The last outputs are stored twice. Once each, they are the newest of the
  // stored text, as they are of the history.
  const std::set<std::vector<TokenId>> known(texts.begin(), texts.end());
  for (const std::vector<TokenId>& text : texts) append(text);
  for (const std::vector<TokenId>& output : outputs) {
    if (known.count(output) == 0) append(output);
  }
  if (stored.empty()) return false;
  const size_t in_history = InHistory();
  absl::MutexLock lock(&mu_);
  text_.insert(text_.begin(), stored.begin(), stored.end());
  counted_ = 0;
  DropOldest(in_history);
  return MarkDue(in_history, 1);
}

absl::StatusOr<bool> ScopePrior::Compact() {
  PriorBuildOptions build;
  build.vocab_size = options_.vocab_size;
  build.tokenizer = options_.tokenizer;
  build.max_bytes = static_cast<uint64_t>(options_.max_bytes);
  const size_t in_history = InHistory();
  std::vector<TokenId> text;
  {
    absl::MutexLock lock(&mu_);
    // Cleared before the text is copied: output that is added during the build
    // makes the next one due.
    due_ = false;
    counted_ = Countable(in_history);
    text.assign(text_.begin(),
                text_.begin() + static_cast<ptrdiff_t>(counted_));
  }
  if (text.empty()) return false;
  // Built from the copy without mu_, so that sessions are not held up.
  FORETOKEN_ASSIGN_OR_RETURN(const std::string bytes, BuildPrior(text, build));
  FORETOKEN_ASSIGN_OR_RETURN(
      std::shared_ptr<const StaticPrior> prior,
      StaticPrior::FromBytes(
          {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
          "prior of a scope", options_.tokenizer));
  absl::MutexLock lock(&mu_);
  prior_ = std::move(prior);
  prior_tokens_ = static_cast<int64_t>(text.size());
  return true;
}

std::shared_ptr<const StaticPrior> ScopePrior::Get() const {
  absl::MutexLock lock(&mu_);
  return prior_;
}

int64_t ScopePrior::counted_tokens() const {
  absl::MutexLock lock(&mu_);
  return prior_tokens_;
}

size_t ScopePrior::bytes() const {
  absl::MutexLock lock(&mu_);
  return (text_.size() + batch_tokens_) * sizeof(TokenId) +
         (prior_ == nullptr ? 0 : prior_->bytes());
}

PriorCompactor::PriorCompactor(std::function<void(const ScopeKey&)> compacted)
    : compacted_(std::move(compacted)), thread_([this] { Main(); }) {}

PriorCompactor::~PriorCompactor() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  thread_.join();
}

void PriorCompactor::Submit(const ScopeKey& key,
                            const std::shared_ptr<ScopePrior>& prior) {
  absl::MutexLock lock(&mu_);
  if (due_.size() >= kManyDue) {
    due_.erase(std::remove_if(
                   due_.begin(), due_.end(),
                   [](const auto& entry) { return entry.second.expired(); }),
               due_.end());
  }
  due_.emplace_back(key, prior);
}

void PriorCompactor::Main() {
  // Linux nices single threads. Failing that, it runs like all others.
  setpriority(PRIO_PROCESS, 0, kNice);
  bool told = false;
  while (true) {
    ScopeKey key;
    std::shared_ptr<ScopePrior> prior;
    {
      absl::MutexLock lock(&mu_);
      const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stop_ || !due_.empty();
      };
      mu_.Await(absl::Condition(&awake));
      if (stop_) return;
      key = due_.front().first;
      prior = due_.front().second.lock();
      due_.pop_front();
    }
    if (prior == nullptr) continue;  // evicted
    const absl::StatusOr<bool> published = prior->Compact();
    if (published.value_or(false)) compacted_(key);
    if (!published.ok() && !std::exchange(told, true)) {
      FORETOKEN_LOG(kWarning, "no prior of a scope: ",
                    std::string(published.status().message()));
    }
  }
}

}  // namespace foretoken::trie_drafter
