// ConstrainedText: the text of one request under its constraint. Gives the
// masks for the rows of a tree, and says what must follow and when the text is
// complete.
//
// LiveGrammar is what the texts of one grammar share: the automaton, which
// grows with what they visit, and the masks. It begins anew when it has grown
// beyond its bound; texts find their state again by their own bytes.
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
  static constexpr int64_t kDefaultMaxBytes = int64_t{64} << 20;

  LiveGrammar(std::shared_ptr<const Grammar> grammar,
              std::shared_ptr<const TokenVocabulary> vocabulary,
              int64_t max_bytes = kDefaultMaxBytes);

  const TokenVocabulary& vocabulary() const { return *vocabulary_; }
  Automaton& automaton() { return *automaton_; }
  TokenMasks& masks() { return *masks_; }
  int64_t bytes() const { return automaton_->bytes() + masks_->bytes(); }

  void set_max_bytes(int64_t bytes) { max_bytes_ = bytes; }
  // Begins anew if the automaton has grown beyond the bound or cannot go on.
  // States from before are void: generation() has changed.
  void RenewIfLarge();
  // Allows for a text that was read anew: the next renewal comes when the
  // automaton has doubled since.
  void NoteReplay() { new_bytes_ = bytes(); }
  int64_t generation() const { return generation_; }

 private:
  void Renew();

  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  int64_t max_bytes_;
  int64_t new_bytes_ = 0;  // of the automaton as it begins
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

  // Appends committed tokens. An end token ends the text; a token that the
  // constraint forbids (a replayed text may hold one) makes it invalid: masks
  // then allow everything. Where the automaton has no memory for the text, the
  // masks are ResourceExhausted from then on.
  void Append(absl::Span<const TokenId> tokens);

  // Whether the text is whole and nothing can follow it.
  bool complete();

  // The tokens that may follow each row of a tree; null: any. Row 0 is the last
  // committed token, row i the token tokens[i] after row parents[i] (the first
  // row's parent is not looked at). A row that is forbidden itself allows any.
  // Where neither a token nor an end token could follow, end tokens may.
  // ResourceExhausted: finding out takes too long.
  absl::StatusOr<std::vector<std::shared_ptr<const TokenBits>>> MaskRows(
      absl::Span<const TokenId> tokens, absl::Span<const int32_t> parents);

  // For each node of a tree, whether it may follow its parent (-1: the text).
  std::vector<bool> Allowed(absl::Span<const TokenId> tokens,
                            absl::Span<const int32_t> parents);

  // The bytes that must follow the text, at most `max`.
  std::string Forced(size_t max);

  bool valid() const { return !invalid_; }

 private:
  // The state after the text, in the grammar's present generation. kDead, and
  // status_ is set, if there is no memory for it.
  Automaton::State Current();
  void Replay();
  Automaton::State After(Automaton::State state, TokenId token);
  bool IsEnd(TokenId token) const;
  absl::StatusOr<std::shared_ptr<const TokenBits>> MaskOf(
      Automaton::State state);

  const std::shared_ptr<LiveGrammar> grammar_;
  std::vector<TokenId> end_tokens_;
  std::string bytes_;  // of the text so far
  Automaton::State state_;
  int64_t generation_;
  absl::Status status_;
  bool invalid_ = false;
  bool ended_ = false;
};

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_CONSTRAINED_TEXT_H_
