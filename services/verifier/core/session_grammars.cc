#include "services/verifier/core/session_grammars.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"

namespace foretoken::verifier {
namespace {

// Grammars that are kept although no session uses them.
constexpr size_t kMostUnused = 32;

}  // namespace

absl::StatusOr<std::unique_ptr<grammar::ConstrainedText>>
SessionGrammars::Begin(std::shared_ptr<const grammar::Grammar> grammar,
                       std::vector<TokenId> end_tokens,
                       const std::string& caller) {
  if (vocabulary_ == nullptr) {
    return absl::FailedPreconditionError(
        "constraint: this verifier has no tokenizer");
  }
  // The address is a safe key, because `kept.grammar` keeps the object alive;
  // equal constraints share one grammar through the cache.
  Kept& kept = kept_[grammar.get()];
  if (kept.live == nullptr) {
    kept.live = std::make_shared<grammar::LiveGrammar>(grammar, vocabulary_);
    kept.grammar = std::move(grammar);
    kept.caller = caller;
  }
  kept.last_used = ++uses_;
  auto text = std::make_unique<grammar::ConstrainedText>(
      kept.live, std::move(end_tokens));
  // With the new text counted as in use, so that its own grammar is not what
  // goes.
  const bool has_room = MakeRoom();
  int64_t callers = 0;
  for (const auto& [key, each] : kept_) {
    if (each.caller == caller && each.live.use_count() > 1) {
      callers += each.live->bytes();
    }
  }
  // One caller may hold half: others must still be able to begin.
  if (has_room && callers <= max_bytes_ / 2) return text;
  text.reset();
  MakeRoom();  // without this one, if no other session uses it
  return absl::ResourceExhaustedError(
      has_room ? "constraint: the grammars of the caller's other requests take "
                 "all memory that one caller may have"
               : "constraint: the grammars of other requests take all memory");
}

int64_t SessionGrammars::bytes() const {
  int64_t bytes = 0;
  for (const auto& [grammar, kept] : kept_) bytes += kept.live->bytes();
  return bytes;
}

bool SessionGrammars::MakeRoom() {
  std::vector<const Kept*> unused;
  int64_t bytes = this->bytes();
  for (const auto& [grammar, kept] : kept_) {
    if (kept.live.use_count() == 1) unused.push_back(&kept);
  }
  std::sort(unused.begin(), unused.end(), [](const Kept* a, const Kept* b) {
    return a->last_used < b->last_used;
  });
  size_t left = unused.size();
  for (const Kept* oldest : unused) {
    if (left <= kMostUnused && bytes <= max_bytes_) break;
    bytes -= oldest->live->bytes();
    --left;
    kept_.erase(oldest->grammar.get());
  }
  // What is free is shared out evenly, with a floor, so that a grammar can
  // always grow a little.
  const int64_t each =
      std::max((max_bytes_ - bytes) / std::max<int64_t>(std::ssize(kept_), 1),
               grammar::LiveGrammar::kLeastGrowth);
  for (auto& [grammar, kept] : kept_) kept.live->set_max_growth(each);
  return bytes <= max_bytes_;
}

}  // namespace foretoken::verifier
