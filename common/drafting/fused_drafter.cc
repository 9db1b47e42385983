#include "common/drafting/fused_drafter.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/drafting/next_token_model.h"
#include "common/drafting/tree_grower.h"

namespace foretoken {
namespace {

class FusedDrafter final : public Drafter {
 public:
  explicit FusedDrafter(const FusedOptions& options)
      : options_(options),
        memory_(options.memory != nullptr
                    ? options.memory
                    : std::make_shared<FusedMemory>(
                          options.use_history ? options.history_tokens : 0)),
        request_(options.use_request ? options.request_tokens : 0),
        trust_(options.keep_history ? memory_->trust : own_trust_),
        model_(options.prior.get(), options.use_request ? &request_ : nullptr,
               options.use_history ? &memory_->history : nullptr, &trust_),
        price_(std::clamp(options.price, 0.0f, 1.0f)) {}
  ~FusedDrafter() override { EndRequest(); }

  void StartRequest(absl::Span<const TokenId> prompt) override;
  void Commit(absl::Span<const TokenId> tokens) override;
  void Draft(int max_nodes, DraftTree& tree) override;
  void EndRequest() override;
  void AddHistory(absl::Span<const TokenId> output) override;
  void ForgetShared() override;

  size_t RequestBytes() const override {
    return request_.MemoryBytes() + output_.capacity() * sizeof(TokenId);
  }
  size_t SharedBytes() const override {
    return options_.use_history ? memory_->history.MemoryBytes() : 0;
  }
  int64_t SharedTokens() const override {
    return options_.use_history ? static_cast<int64_t>(memory_->history.size())
                                : 0;
  }

 private:
  void Take(TokenId token);
  // Other requests may have evicted what the cursor points to.
  void RefreshHistory();

  const FusedOptions options_;
  const std::shared_ptr<FusedMemory> memory_;
  WindowTrie request_;
  SharedTrust own_trust_;  // where nothing is to be kept
  Trust trust_;
  NextTokenModel model_;
  TreeGrower grower_;
  const float price_;

  Cursor cursor_;
  Cursor next_;
  std::vector<TokenId> output_;  // of this request, for the history
  uint64_t history_version_ = 0;
};

void FusedDrafter::StartRequest(absl::Span<const TokenId> prompt) {
  EndRequest();
  if (!options_.keep_history) own_trust_ = memory_->trust;
  trust_.StartRequest();
  model_.StartRequest();
  request_.Clear();
  cursor_ = Cursor{};
  history_version_ = memory_->history.version();
  for (TokenId token : prompt) {
    model_.Advance(cursor_, token, next_);
    Take(token);
  }
}

void FusedDrafter::Commit(absl::Span<const TokenId> tokens) {
  RefreshHistory();
  for (TokenId token : tokens) {
    model_.LearnAndAdvance(cursor_, token, next_);
    Take(token);
    if (!options_.use_history || !options_.keep_history) continue;
    // The window would evict what is older than its size again.
    if (output_.size() >= 2 * options_.history_tokens) {
      output_.erase(
          output_.begin(),
          output_.end() - static_cast<ptrdiff_t>(options_.history_tokens));
    }
    output_.push_back(token);
  }
}

// After `next_` has moved in all but the request's own text.
void FusedDrafter::Take(TokenId token) {
  if (options_.use_request) {
    model_.Follow(cursor_, request_.Append(token), next_);
  }
  model_.Settle(next_);
  std::swap(cursor_, next_);
  model_.MarkSeen(token);
}

void FusedDrafter::Draft(int max_nodes, DraftTree& tree) {
  RefreshHistory();
  grower_.Grow(model_, cursor_, max_nodes, price_, tree);
}

void FusedDrafter::RefreshHistory() {
  if (history_version_ == memory_->history.version()) return;
  history_version_ = memory_->history.version();
  cursor_.sources[static_cast<int>(Source::kHistory)] = Cursor::Matches{};
}

void FusedDrafter::AddHistory(absl::Span<const TokenId> output) {
  if (!options_.use_history) return;
  for (TokenId token : output) memory_->history.Append(token);
  memory_->history.EndSequence();
}

void FusedDrafter::EndRequest() {
  AddHistory(output_);
  // A fresh vector: one long request must not weigh on all after it.
  output_ = std::vector<TokenId>();
}

void FusedDrafter::ForgetShared() {
  output_ = std::vector<TokenId>();
  memory_->history.Clear();
  memory_->trust.Reset();
}

}  // namespace

std::unique_ptr<Drafter> MakeFusedDrafter(const FusedOptions& options) {
  return std::make_unique<FusedDrafter>(options);
}

}  // namespace foretoken
