// SessionGrammars: the grammars of the sessions that have a constraint.
//
// Sessions of one grammar share its automaton and masks. Those that no session
// uses are kept for the next one, within a bound on memory.
// Owned by the engine thread.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_SESSION_GRAMMARS_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_SESSION_GRAMMARS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/grammar/constrained_text.h"
#include "common/grammar/grammar.h"
#include "common/grammar/token_trie.h"

namespace foretoken::verifier {

class SessionGrammars {
 public:
  // `vocabulary` may be null: then constraints are FailedPrecondition.
  // `max_bytes`: of all automata and masks together, about.
  SessionGrammars(std::shared_ptr<const grammar::TokenVocabulary> vocabulary,
                  int64_t max_bytes)
      : vocabulary_(std::move(vocabulary)), max_bytes_(max_bytes) {}

  // A text under `grammar`, empty as yet. `end_tokens` end it.
  // ResourceExhausted if the grammars of other sessions leave no memory, or
  // those that sessions use and `caller` was the first to ask for take half.
  absl::StatusOr<std::unique_ptr<grammar::ConstrainedText>> Begin(
      std::shared_ptr<const grammar::Grammar> grammar,
      std::vector<TokenId> end_tokens, const std::string& caller);

  int64_t bytes() const;  // of all automata and masks, about

 private:
  struct Kept {
    std::shared_ptr<const grammar::Grammar> grammar;
    std::shared_ptr<grammar::LiveGrammar> live;
    std::string caller;  // that asked for it first
    int64_t last_used = 0;
  };
  // Drops unused ones and divides the memory among the others; false if these
  // take too much.
  bool MakeRoom();

  const std::shared_ptr<const grammar::TokenVocabulary> vocabulary_;
  const int64_t max_bytes_;
  absl::flat_hash_map<const grammar::Grammar*, Kept> kept_;
  int64_t uses_ = 0;
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_SESSION_GRAMMARS_H_
