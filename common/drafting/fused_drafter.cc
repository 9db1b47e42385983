#include "common/drafting/fused_drafter.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/drafting/fused_tuning.h"
#include "common/drafting/next_token_model.h"
#include "common/drafting/tree_grower.h"
#include "common/drafting/verified_tree.h"

namespace foretoken {
namespace {

// Tokens processed per acquisition of the memory's lock.
constexpr size_t kChunk = 256;

size_t Chunk(absl::Span<const TokenId> tokens) {
  return std::min(tokens.size(), kChunk);
}

class FusedDrafter final : public Drafter {
 public:
  // Sources that are switched off get no memory.
  explicit FusedDrafter(const FusedOptions& options)
      : options_(options),
        memory_(options.memory != nullptr
                    ? options.memory
                    : std::make_shared<FusedMemory>(
                          options.use_history ? options.history_tokens : 0)),
        request_(options.use_request ? options.request_tokens : 0),
        recycled_(options.recycled_sights),
        trust_(learned_),
        model_(EvidenceOf(options), &trust_),
        price_(std::clamp(options.price, 0.0f, 1.0f)) {}
  // What the request has learned goes to the shared memory on every way out.
  ~FusedDrafter() override { EndRequest(); }

  void StartRequest(absl::Span<const TokenId> prompt) override;
  void Commit(absl::Span<const TokenId> tokens) override;
  void Observe(const VerifiedTree& verified) override;
  bool reads_candidates() const override { return options_.use_recycled; }
  void Draft(int max_nodes, DraftTree& tree) override;
  void EndRequest() override;
  void AddHistory(absl::Span<const TokenId> output) override;
  void ForgetShared() override;

  size_t RequestBytes() const override {
    return request_.MemoryBytes() + recycled_.MemoryBytes() +
           output_.capacity() * sizeof(TokenId);
  }
  size_t SharedBytes() const override {
    return options_.use_history ? memory_->MemoryBytes() : 0;
  }
  int64_t SharedTokens() const override {
    return options_.use_history ? memory_->Tokens() : 0;
  }

 private:
  NextTokenModel::Evidence EvidenceOf(const FusedOptions& options) const {
    NextTokenModel::Evidence evidence;
    evidence.prior = options.prior.get();
    evidence.scope_prior = options.scope_prior.get();
    if (options.use_request) evidence.request = &request_;
    if (options.use_history) evidence.history = &memory_->history();
    if (options.use_recycled) evidence.recycled = &recycled_;
    if (options.use_recycled && options.use_history) {
      evidence.recycled_history = &memory_->recycled();
    }
    return evidence;
  }
  void Take(TokenId token);
  // Adds the candidates after row `row` of the tree to `recycled_`.
  void Recycle(const VerifiedTree& verified, int32_t row);
  // Drops the history's part of the cursor if other requests have changed the
  // history since. Call after every acquisition of the memory's lock.
  void RefreshHistory();

  const FusedOptions options_;
  const std::shared_ptr<FusedMemory> memory_;
  WindowTrie request_;
  RecycledCandidates recycled_;
  SharedTrust start_;    // shared trust when the request began
  SharedTrust learned_;  // start_ plus what the request has learned
  bool running_ = false;
  Trust trust_;
  NextTokenModel model_;
  TreeGrower grower_;
  const float price_;

  Cursor cursor_;
  Cursor next_;
  // As of before the last Commit.
  TokenId row_token_ = -1;       // the last token
  TokenId row_previous_ = -1;    // the one before
  int64_t row_outputs_ = 0;      // tokens of the output
  int64_t outputs_ = 0;          // tokens of the output so far
  std::vector<TokenId> output_;  // output of this request, for the history
  uint64_t history_version_ = 0;
};

void FusedDrafter::StartRequest(absl::Span<const TokenId> prompt) {
  // A caller may start a request without having ended the last.
  EndRequest();
  // Learn on a private copy: concurrent requests must not change the factors
  // within a request, or its drafts would not be reproducible.
  start_ = learned_ = memory_->trust();
  running_ = true;
  trust_.StartRequest();
  model_.StartRequest();
  request_.Clear();
  recycled_.Clear();
  outputs_ = 0;
  cursor_ = Cursor{};
  // In chunks, so that a long prompt does not keep writers of the history
  // waiting.
  for (; !prompt.empty(); prompt.remove_prefix(Chunk(prompt))) {
    absl::ReaderMutexLock lock(&memory_->mu());
    // Other requests may have changed the history while the lock was free.
    RefreshHistory();
    for (TokenId token : prompt.first(Chunk(prompt))) {
      model_.Advance(cursor_, token, next_);
      Take(token);
    }
  }
}

void FusedDrafter::Commit(absl::Span<const TokenId> tokens) {
  // As they were: Observe comes after this and refers to the tree that was
  // drafted before it.
  row_token_ = cursor_.token;
  row_previous_ = cursor_.previous;
  row_outputs_ = outputs_;
  outputs_ += static_cast<int64_t>(tokens.size());
  for (absl::Span<const TokenId> rest = tokens; !rest.empty();
       rest.remove_prefix(Chunk(rest))) {
    // Readers share the history; only the end of a request writes.
    absl::ReaderMutexLock lock(&memory_->mu());
    RefreshHistory();
    for (TokenId token : rest.first(Chunk(rest))) {
      model_.LearnAndAdvance(cursor_, token, next_);
      Take(token);
    }
  }
  for (TokenId token : tokens) {
    if (!options_.use_history || !options_.keep_history) continue;
    // The history window would evict older tokens anyway. Erasing at twice its
    // size makes the cost O(1) per token.
    if (output_.size() >= 2 * options_.history_tokens) {
      output_.erase(
          output_.begin(),
          output_.end() - static_cast<ptrdiff_t>(options_.history_tokens));
    }
    output_.push_back(token);
  }
}

// Completes the step to `next_`, which has moved in all sources but the
// request's own text.
void FusedDrafter::Take(TokenId token) {
  // Append first, then read the open contexts: the request's text now ends
  // with `token`.
  if (options_.use_request) {
    model_.Follow(cursor_, request_.Append(token), next_);
  }
  model_.Settle(next_);
  // A swap, so that both cursors keep their buffers.
  std::swap(cursor_, next_);
  model_.MarkSeen(token);
}

void FusedDrafter::Recycle(const VerifiedTree& verified, int32_t row) {
  const CandidateRows& rows = verified.candidates;
  const size_t width = static_cast<size_t>(rows.width);
  const size_t begin = static_cast<size_t>(row) * width;
  const absl::Span<const TokenId> tokens(rows.tokens.data() + begin, width);
  const absl::Span<const uint8_t> costs(rows.costs.data() + begin, width);
  const int32_t node = row - 1;
  const int32_t parent = node < 0 ? kRootParent : verified.tree.parents()[node];
  const bool on_path =
      node < 0 || std::find(verified.path.begin(), verified.path.end(), node) !=
                      verified.path.end();
  TokenId last = row_token_;
  TokenId previous = row_previous_;
  int64_t outputs = row_outputs_;  // of the tokens up to `last`, if on the path
  if (node >= 0) {
    last = verified.tree.tokens()[node];
    previous = parent < 0 ? row_token_ : verified.tree.tokens()[parent];
    outputs += parent < 0 ? 1 : 2;
  }
  // Own: the context is in the output, not only in a draft. Only own sights are
  // kept for later requests.
  recycled_.Add(RecycledCandidates::kAny, last, tokens, costs,
                on_path && outputs >= 1);
  if (previous < 0) return;
  recycled_.Add(previous, last, tokens, costs, on_path && outputs >= 2);
}

void FusedDrafter::Observe(const VerifiedTree& verified) {
  const int32_t rows = verified.tree.size() + 1;
  const size_t size = static_cast<size_t>(rows * verified.candidates.width);
  // The tree must belong to the text that Commit has just extended; after a
  // replay or a late answer it does not.
  if (!options_.use_recycled || row_token_ < 0 ||
      outputs_ - row_outputs_ !=
          static_cast<int64_t>(verified.path.size()) + 1 ||
      verified.candidates.tokens.size() != size ||
      verified.candidates.costs.size() != size) {
    return;
  }
  // The latest sight of a context stays. So the likeliest nodes, which come
  // first, are added last, and the rows of the committed tokens after them.
  for (int32_t row = rows - 1; row > 0; --row) Recycle(verified, row);
  Recycle(verified, 0);
  for (const int32_t node : verified.path) Recycle(verified, node + 1);
}

void FusedDrafter::Draft(int max_nodes, DraftTree& tree) {
  absl::ReaderMutexLock lock(&memory_->mu());
  RefreshHistory();
  grower_.Grow(model_, cursor_, max_nodes, price_, tree);
}

void FusedDrafter::RefreshHistory() {
  const uint64_t version = memory_->history().version();
  if (history_version_ == version) return;
  history_version_ = version;
  // Matches refer to positions of the history, which a writer may have moved.
  cursor_.sources[static_cast<int>(Source::kHistory)] = Cursor::Matches{};
}

void FusedDrafter::AddHistory(absl::Span<const TokenId> output) {
  if (options_.use_history && !output.empty()) memory_->AddOutput(output);
}

void FusedDrafter::EndRequest() {
  AddHistory(output_);
  if (running_ && options_.use_history && options_.keep_history) {
    memory_->AddRecycled(recycled_);
  }
  // A fresh vector releases the memory: one long request must not weigh on
  // later ones.
  output_ = std::vector<TokenId>();
  // Only what this request has changed is merged (Learn): others may have
  // learned meanwhile.
  if (running_ && options_.keep_history) memory_->Learn(start_, learned_);
  running_ = false;
}

void FusedDrafter::ForgetShared() {
  output_ = std::vector<TokenId>();
  running_ = false;
  memory_->Forget();
}

}  // namespace

void FusedMemory::AddOutput(absl::Span<const TokenId> output) {
  // writing_ keeps outputs from interleaving while mu_ is released between
  // chunks.
  absl::MutexLock one(&writing_);
  for (; !output.empty(); output.remove_prefix(Chunk(output))) {
    absl::MutexLock lock(&mu_);
    for (TokenId token : output.first(Chunk(output))) history_.Append(token);
  }
  absl::MutexLock lock(&mu_);
  // No match may reach across two outputs.
  history_.EndSequence();
}

void FusedMemory::AddRecycled(const RecycledCandidates& of_request) {
  if (of_request.empty()) return;
  absl::MutexLock lock(&mu_);
  recycled_.AddOwn(of_request);
}

void FusedMemory::Forget() {
  // In the order of AddOutput.
  absl::MutexLock one(&writing_);
  absl::MutexLock lock(&mu_);
  history_.Clear();
  recycled_.Clear();
  trust_.Reset();
}

SharedTrust FusedMemory::trust() const {
  absl::ReaderMutexLock lock(&mu_);
  return trust_;
}

void FusedMemory::Learn(const SharedTrust& before, const SharedTrust& after) {
  constexpr float kMax = fused_tuning::kMaxSharedFactor;
  absl::MutexLock lock(&mu_);
  for (size_t kind = 0; kind < SharedTrust::kKinds; ++kind) {
    // Steps are multiplicative, so those of concurrent requests combine as a
    // product. Without any in between, the result is exactly this request's.
    trust_[kind] = trust_[kind] == before[kind]
                       ? after[kind]
                       : std::clamp(trust_[kind] * after[kind] / before[kind],
                                    1.0f / kMax, kMax);
  }
}

size_t FusedMemory::MemoryBytes() const {
  absl::ReaderMutexLock lock(&mu_);
  return history_.MemoryBytes() + recycled_.MemoryBytes();
}

int64_t FusedMemory::Tokens() const {
  absl::ReaderMutexLock lock(&mu_);
  return static_cast<int64_t>(history_.size());
}

std::unique_ptr<Drafter> MakeFusedDrafter(const FusedOptions& options) {
  return std::make_unique<FusedDrafter>(options);
}

}  // namespace foretoken
