// ConstrainedText: the text of one request under its constraint. Gives the
// masks for the rows of a tree, and says what must follow and when the text is
// complete.
//
// LiveGrammar is what the texts of one grammar share: the automaton, which
// grows with what they visit, and the masks. It begins anew when it has grown
// enough; texts find their state again by their own bytes.
// Owned by one thread, both.
#ifndef FORETOKEN_COMMON_GRAMMAR_CONSTRAINED_TEXT_H_
#define FORETOKEN_COMMON_GRAMMAR_CONSTRAINED_TEXT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/grammar/automaton.h"
#include "common/grammar/grammar.h"
#include "common/grammar/token_masks.h"
#include "common/grammar/token_trie.h"

namespace foretoken::grammar {

class LiveGrammar {
 public:
  // Memory by which an automaton may grow before it begins anew. Well below
  // Automaton::kMaxGrowth, so that texts renew it in time.
  static constexpr int64_t kDefaultGrowth = int64_t{16} << 20;
  // One pass can make so many states that this is worth keeping.
  static constexpr int64_t kLeastGrowth = int64_t{1} << 20;

  LiveGrammar(std::shared_ptr<const Grammar> grammar,
              std::shared_ptr<const TokenVocabulary> vocabulary,
              int64_t max_growth = kDefaultGrowth,
              int64_t max_memory = Automaton::kMaxGrowth);

  const TokenVocabulary& vocabulary() const { return *vocabulary_; }
  Automaton& automaton() { return *automaton_; }
  TokenMasks& masks() { return *masks_; }
  int64_t bytes() const { return automaton_->bytes() + masks_->bytes(); }

  // kDefaultGrowth at most.
  void set_max_growth(int64_t bytes);
  // Begins anew; states from before are void: generation() has changed.
  void Renew();
  // Does so if the automaton has grown by more than it may, or cannot go on.
  void RenewIfLarge();
  // A text was read again: what it needed does not count as growth.
  void NoteReplay() { new_bytes_ = bytes(); }
  int64_t generation() const { return generation_; }

 private:
  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  const int64_t max_memory_;  // Automaton's max_growth
  int64_t max_growth_;
  int64_t new_bytes_ = 0;  // as the automaton begins
  std::unique_ptr<Automaton> automaton_;
  std::unique_ptr<TokenMasks> masks_;
  int64_t generation_ = 0;
};

class ConstrainedText {
 public:
  // `end_tokens` may follow exactly where the text may end. Those of them that
  // are text (a client's stop tokens) follow the constraint as all text does.
  ConstrainedText(std::shared_ptr<LiveGrammar> grammar,
                  std::vector<TokenId> end_tokens);

  // Appends committed tokens; an end token ends the text. Sets status() if the
  // constraint forbids one.
  void Append(absl::Span<const TokenId> tokens);

  // InvalidArgument: the text does not keep to the constraint.
  // ResourceExhausted: the automaton has no memory for it.
  const absl::Status& status() const { return status_; }

  // Whether the text is whole and nothing can follow it.
  bool complete();

  // The tokens that may follow each row of a tree. Row 0 is the last committed
  // token, row i the token tokens[i] after row parents[i] (the first row's
  // parent is not looked at). Null for a row that the constraint forbids, and
  // for one whose mask would take too long: neither may be accepted. Never null
  // for row 0, unless the text has ended.
  //
  // The text's status(); ResourceExhausted if the mask of row 0 takes too long,
  // InvalidArgument if no token and no end can follow.
  absl::StatusOr<std::vector<std::shared_ptr<const TokenBits>>> MaskRows(
      absl::Span<const TokenId> tokens, absl::Span<const int32_t> parents);

  // For each node of a tree, whether it may follow its parent (-1: the text).
  // True as well where that cannot be told, or takes too long.
  std::vector<bool> Allowed(absl::Span<const TokenId> tokens,
                            absl::Span<const int32_t> parents);

  // The bytes that must follow the text, at most `max`, and up to a special
  // token, since no text encodes to it.
  std::string Forced(size_t max);

 private:
  // The state after the text, in the grammar's present generation; kDead, and
  // status_ is set, if there is no memory for it.
  Automaton::State Current();
  void Replay();
  Automaton::State After(Automaton::State state, TokenId token);
  bool IsEnd(TokenId token) const;
  absl::StatusOr<std::shared_ptr<const TokenBits>> MaskOf(
      Automaton::State state, int64_t max_work);

  const std::shared_ptr<LiveGrammar> grammar_;
  std::vector<TokenId> end_tokens_;
  std::string bytes_;  // of the text so far, as the grammar reads them
  Automaton::State state_;
  int64_t generation_;
  absl::Status status_;
  bool ended_ = false;
};

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_CONSTRAINED_TEXT_H_
