#include "services/draft_worker/core/ouroboros_mode.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"

namespace foretoken::draft_worker {
namespace {

// Expected acceptance before the session has shown its own.
constexpr float kChainPrior = 0.7f;
constexpr float kSuffixPrior = 0.3f;
// Accepted tokens of a pass, and how many observations that counts as.
constexpr double kPassPrior = 0.7;
constexpr double kPassPriorWeight = 8.0;
// Tokens that a phrase besides the newest one is worth: it saves a pass where
// it is right.
constexpr double kPhraseWorth = 0.25;

// The child of `node` that holds `token`, -2 if the tree has none.
constexpr int32_t kNoNode = -2;
int32_t ChildOf(const TokenTree& tree, int32_t node, TokenId token) {
  const absl::Span<const TokenId> tokens = tree.tokens();
  const absl::Span<const int32_t> parents = tree.parents();
  for (int32_t child = node + 1; child < tree.size(); ++child) {
    if (parents[child] == node && tokens[child] == token) return child;
  }
  return kNoNode;
}

PhrasePoolOptions PoolOptions(const OuroborosOptions& options,
                              const ModeLimits& limits) {
  PhrasePoolOptions pool;
  pool.width = options.window;
  pool.phrase_tokens = options.beta;
  pool.max_phrases = limits.max_phrases;
  return pool;
}

}  // namespace

OuroborosMode::OuroborosMode(const OuroborosOptions& options,
                             const ModeLimits& limits,
                             absl::Span<const Phrase> warm_start)
    : DraftMode(options.gamma, limits),
      options_(options),
      pool_(PoolOptions(options, limits)),
      window_(std::max(1, options.LookaheadColumns()), options.beta),
      chain_acceptance_(kChainPrior),
      suffix_acceptance_(kSuffixPrior) {
  // Checked where the mode is made; a pass with more rows would not fit the
  // engine's buffers.
  FORETOKEN_CHECK(options.MaxRows() <= limits.max_rows);
  if (!options.warm_start) return;
  for (const Phrase& phrase : warm_start) {
    // Phrases of another length, or with tokens that this model cannot read,
    // are of no use here.
    if (static_cast<int>(phrase.size()) == options.beta &&
        IsProposable(phrase)) {
      pool_.Insert(phrase);
    }
  }
}

bool OuroborosMode::IsProposable(absl::Span<const TokenId> phrase) const {
  return std::all_of(phrase.begin(), phrase.end(), [this](TokenId token) {
    return token >= 0 && token < limits_.vocab_limit;
  });
}

bool OuroborosMode::PoolHas(absl::Span<const TokenId> phrase) const {
  // The pool has at most `window` phrases for each first token, so these are
  // all of them.
  pool_.Newest(phrase[0], options_.window, newest_);
  return std::find(newest_.begin(), newest_.end(), phrase) != newest_.end();
}

void OuroborosMode::Gain(absl::Span<const TokenId> phrase) {
  // Bounded: an orchestrator that never collects them must not cost memory.
  if (gained_.size() == kMaxGained) gained_.erase(gained_.begin());
  gained_.emplace_back(phrase.begin(), phrase.end());
}

std::vector<Phrase> OuroborosMode::TakeGained() {
  std::vector<Phrase> gained;
  gained.swap(gained_);
  return gained;
}

// Learning from a round -------------------------------------------------------

void OuroborosMode::Observe(const Observation& observation) {
  if (!observation.follows_draft) return;
  const absl::Span<const TokenId> committed = observation.committed;
  chain_acceptance_.Observe(chain_, committed);
  LearnPasses(committed);
  const size_t length = chain_.size();
  // Suffixes hang on the whole chain: their acceptance shows only if all of it
  // was accepted.
  if (committed.size() > length &&
      std::equal(chain_.begin(), chain_.end(), committed.begin())) {
    for (const Phrase& suffix : suffixes_) {
      suffix_acceptance_.Observe(absl::MakeConstSpan(suffix).subspan(1),
                                 committed.subspan(length));
    }
  }
  if (observation.verified == nullptr) return;

  const VerifiedTree& verified = *observation.verified;
  std::vector<int32_t> nodes = {kRootParent};
  while (nodes.size() <= length) {
    const int32_t node =
        ChildOf(verified.tree, nodes.back(), chain_[nodes.size() - 1]);
    if (node == kNoNode || verified.row_tokens[node + 1] < 0) break;
    nodes.push_back(node);
  }
  if (verified.row_tokens[0] < 0) return;
  if (options_.inspiration) Inspire(verified, nodes);
  // The suffixes hang on the whole chain.
  if (options_.refinement && nodes.size() == length + 1) {
    RefineSuffixes(verified, nodes.back());
  }
}

void OuroborosMode::LearnPasses(absl::Span<const TokenId> committed) {
  const size_t known = std::min(chain_.size(), committed.size());
  size_t accepted = 0;
  while (accepted < known && chain_[accepted] == committed[accepted]) {
    ++accepted;
  }
  size_t begin = 0;
  for (const size_t end : pass_ends_) {
    if (accepted < begin || begin >= known) return;
    // The round committed less than the chain holds, and all of it agrees: what
    // the rest of the pass was worth is not known.
    if (accepted == known && known < end) return;
    ++passes_reached_;
    pass_tokens_ += static_cast<int64_t>(std::min(accepted, end) - begin);
    begin = end;
  }
}

double OuroborosMode::FurtherGain() const {
  if (!options_.by_price || probs_.empty()) {
    return std::numeric_limits<double>::infinity();
  }
  const double tokens =
      (static_cast<double>(pass_tokens_) + kPassPrior * kPassPriorWeight) /
      (static_cast<double>(passes_reached_) + kPassPriorWeight);
  return static_cast<double>(probs_.back()) * tokens -
         room_.prices.Node(chain_.size());
}

int OuroborosMode::PhrasesOfPass() const {
  if (!options_.by_price) return options_.window;
  const double price = room_.prices.row * (options_.beta - 1);
  return static_cast<int>(std::clamp(kPhraseWorth / std::max(price, 1e-6), 1.0,
                                     static_cast<double>(options_.window)));
}

void OuroborosMode::Inspire(const VerifiedTree& verified,
                            absl::Span<const int32_t> nodes) {
  std::vector<TokenId> target;  // after the last committed token, after d_1, ..
  for (const int32_t node : nodes) {
    target.push_back(verified.row_tokens[node + 1]);
  }
  const auto draft = absl::MakeConstSpan(chain_).first(nodes.size() - 1);
  // Tokens unknown to the draft model cannot be rows of its passes.
  if (!IsProposable(target)) return;
  int accepted = 0;
  while (accepted < static_cast<int>(draft.size()) &&
         draft[accepted] == target[accepted]) {
    ++accepted;
  }
  const int inserted = pool_.Inspire(draft, target, accepted);
  totals_.inspired += inserted;
  if (inserted == 0) return;
  // The inserted phrases are the newest of the pool; equal ones are stored
  // once.
  const std::vector<TokenId> all = pool_.Snapshot();
  const size_t beta = static_cast<size_t>(options_.beta);
  const size_t tail = std::min(inserted * beta, all.size());
  for (size_t at = all.size() - tail; at < all.size(); at += beta) {
    Gain(absl::MakeConstSpan(all).subspan(at, beta));
  }
}

void OuroborosMode::RefineSuffixes(const VerifiedTree& verified, int32_t leaf) {
  for (const Phrase& suffix : suffixes_) {
    Phrase refined = {suffix[0], verified.row_tokens[leaf + 1]};
    int32_t node = leaf;
    for (size_t i = 1; i + 1 < suffix.size(); ++i) {
      node = ChildOf(verified.tree, node, suffix[i]);
      if (node == kNoNode) break;
      refined.push_back(verified.row_tokens[node + 1]);
    }
    // The tree lacks rows of this suffix, so the target's tokens are unknown.
    if (refined.size() != suffix.size() || !IsProposable(refined)) continue;
    if (refined == suffix) continue;
    if (!pool_.RefineSuffix(suffix, refined[1],
                            absl::MakeConstSpan(refined).subspan(2))) {
      continue;
    }
    ++totals_.refined;
    Gain(refined);
  }
}

// Drafting --------------------------------------------------------------------

void OuroborosMode::Begin(absl::Span<const TokenId> text,
                          const DraftRoom& room) {
  DraftMode::Begin(text, room);
  text_last_ = text.back();
  suffixes_.clear();
  probs_.clear();
  pass_ends_.clear();
  passes_ = 0;
  if (!window_.started()) window_.Start(text);
  if (options_.context) LearnContext(text);
}

// Inserts every new window of beta tokens, oldest first.
void OuroborosMode::LearnContext(absl::Span<const TokenId> text) {
  const size_t beta = static_cast<size_t>(options_.beta);
  for (; context_end_ + beta <= text.size(); ++context_end_) {
    const auto phrase = text.subspan(context_end_, beta);
    if (IsProposable(phrase)) pool_.Insert(phrase);
  }
}

bool OuroborosMode::done() const {
  return DraftMode::done() ||
         (options_.passes > 0 && passes_ >= options_.passes) ||
         !(FurtherGain() > room_.prices.pass);
}

void OuroborosMode::LayOut(int32_t root, int32_t kept, PassRows& rows) {
  last_ = chain_.empty() ? text_last_ : chain_.back();
  last_row_ = LayOutChain(root, kept, rows);
  LayOutPhrases(rows);
  const int64_t depth = static_cast<int64_t>(chain_.size());
  // The deepest cell of the window must still be a position of the model.
  has_window_ = options_.LookaheadColumns() > 0 &&
                depth + window_.depth() <= room_.max_depth;
  if (has_window_) window_.LayOut(last_row_, rows);
}

void OuroborosMode::LayOutPhrases(PassRows& rows) {
  phrase_rows_.clear();
  pool_.Newest(last_, PhrasesOfPass(), newest_);
  phrases_laid_out_ = static_cast<int64_t>(newest_.size());
  const int64_t room = room_.max_depth - static_cast<int64_t>(chain_.size());
  for (const absl::Span<const TokenId> phrase : newest_) {
    int32_t at = last_row_;
    for (size_t i = 1; i < phrase.size() && static_cast<int64_t>(i) <= room;
         ++i) {
      // Phrases that begin alike share rows.
      const auto [entry, is_new] =
          phrase_rows_.try_emplace({at, phrase[i]}, rows.size());
      // Each row is an output: which of them the chain will follow is known
      // only after the pass.
      if (is_new) rows.outputs.push_back(rows.Add(phrase[i], at));
      at = entry->second;
    }
  }
}

void OuroborosMode::Take(absl::Span<const SampledToken> outputs) {
  ++passes_;
  totals_.phrases_tried += phrases_laid_out_;
  TakeChain(outputs);
  pass_ends_.push_back(chain_.size());
  if (has_window_) TakeWindow(outputs);
}

void OuroborosMode::TakeChain(absl::Span<const SampledToken> outputs) {
  int32_t at = last_row_;
  while (true) {
    const TokenId token = outputs[at].token;
    if (!Extend(token)) return;
    probs_.push_back((probs_.empty() ? 1.0f : probs_.back()) *
                     (options_.by_price
                          ? ProbabilityOf(outputs[at])
                          : chain_acceptance_.Conditional(probs_.size())));
    if (ended_) return;
    const auto child = phrase_rows_.find({at, token});
    if (child == phrase_rows_.end()) return;
    ++totals_.phrase_tokens;
    at = child->second;
    // Its KV row is computed, so the next pass need not repeat it.
    chain_rows_.push_back(at);
    if (static_cast<int>(chain_.size()) >= room_.max_nodes) return;
  }
}

void OuroborosMode::TakeWindow(absl::Span<const SampledToken> outputs) {
  std::vector<TokenId> phrases;
  window_.Take(last_, outputs, phrases);
  const size_t beta = static_cast<size_t>(options_.beta);
  for (size_t at = 0; at < phrases.size(); at += beta) {
    const auto phrase = absl::MakeConstSpan(phrases).subspan(at, beta);
    if (!IsProposable(phrase)) continue;
    if (!PoolHas(phrase)) {
      ++totals_.phrases_made;
      Gain(phrase);
    }
    pool_.Insert(phrase);
  }
}

void OuroborosMode::Finish(DraftTree& tree) {
  tree.Clear();
  suffixes_.clear();
  const size_t max_nodes = static_cast<size_t>(room_.max_nodes);
  // The chain may be longer than the room of this round.
  if (chain_.size() > max_nodes) chain_.resize(max_nodes);
  float prob = 1.0f;
  int32_t leaf = kRootParent;
  const auto pays = [&](float path) {
    return !options_.by_price || tree.size() == 0 ||
           static_cast<double>(path) >
               room_.prices.Node(static_cast<size_t>(tree.size()));
  };
  for (size_t i = 0; i < chain_.size(); ++i) {
    if (!pays(probs_[i])) return;  // nor does anything below it
    prob = probs_[i];
    leaf = tree.Add(chain_[i], leaf, prob);
  }
  if (ended_) return;
  pool_.Newest(chain_.empty() ? text_last_ : chain_.back(), options_.suffixes,
               newest_);
  absl::flat_hash_map<std::pair<int32_t, TokenId>, int32_t> nodes;
  for (const absl::Span<const TokenId> phrase : newest_) {
    suffixes_.emplace_back(phrase.begin(), phrase.end());
    int32_t at = leaf;
    float path = prob;
    for (size_t i = 1; i < phrase.size(); ++i) {
      path *= suffix_acceptance_.Conditional(i - 1);
      const auto [entry, is_new] =
          nodes.try_emplace({at, phrase[i]}, tree.size());
      // Full: further phrases would only be cut.
      if (is_new && static_cast<size_t>(tree.size()) == max_nodes) return;
      if (is_new && !pays(path)) return;
      if (is_new) tree.Add(phrase[i], at, path);
      at = entry->second;
    }
  }
}

}  // namespace foretoken::draft_worker
