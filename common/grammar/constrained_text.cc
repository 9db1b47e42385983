#include "common/grammar/constrained_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::grammar {

LiveGrammar::LiveGrammar(std::shared_ptr<const Grammar> grammar,
                         std::shared_ptr<const TokenVocabulary> vocabulary,
                         int64_t max_bytes)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      max_bytes_(max_bytes) {
  Renew();
}

void LiveGrammar::Renew() {
  masks_.reset();  // refers to the automaton
  automaton_ = std::make_unique<Automaton>(grammar_);
  masks_ = std::make_unique<TokenMasks>(*automaton_, vocabulary_);
  ++generation_;
  new_bytes_ = bytes();
}

void LiveGrammar::RenewIfLarge() {
  // A grammar that is larger than the bound as it begins may double.
  if (bytes() > std::max(max_bytes_, 2 * new_bytes_) ||
      !automaton_->status().ok()) {
    Renew();
  }
}

ConstrainedText::ConstrainedText(std::shared_ptr<LiveGrammar> grammar,
                                 std::vector<TokenId> end_tokens)
    : grammar_(std::move(grammar)),
      end_tokens_(std::move(end_tokens)),
      state_(grammar_->automaton().start()),
      generation_(grammar_->generation()) {
  end_tokens_.erase(std::remove_if(end_tokens_.begin(), end_tokens_.end(),
                                   [&](TokenId token) {
                                     return !grammar_->vocabulary()
                                                 .bytes(token)
                                                 .empty();
                                   }),
                    end_tokens_.end());
}

bool ConstrainedText::IsEnd(TokenId token) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), token) !=
         end_tokens_.end();
}

Automaton::State ConstrainedText::Current() {
  grammar_->RenewIfLarge();
  if (generation_ != grammar_->generation()) Replay();
  return state_;
}

void ConstrainedText::Replay() {
  Automaton& automaton = grammar_->automaton();
  state_ = automaton.Step(automaton.start(), bytes_);
  generation_ = grammar_->generation();
  grammar_->NoteReplay();
  // The text was possible before: only a lack of memory ends it.
  if (state_ != Automaton::kDead) return;
  status_ = automaton.status();
  if (status_.ok()) status_ = absl::InternalError("the text was possible before");
}

Automaton::State ConstrainedText::After(Automaton::State state,
                                        TokenId token) {
  const absl::string_view bytes = grammar_->vocabulary().bytes(token);
  return bytes.empty() ? Automaton::kDead
                       : grammar_->automaton().Step(state, bytes);
}

void ConstrainedText::Append(absl::Span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (invalid_ || ended_ || !status_.ok()) return;
    if (IsEnd(token)) {
      ended_ = true;
      return;
    }
    Automaton::State next = After(Current(), token);
    if (next == Automaton::kDead && !grammar_->automaton().status().ok()) {
      // Once more in a new automaton, which begins with all of its memory.
      next = After(Current(), token);
      if (!grammar_->automaton().status().ok()) {
        status_ = grammar_->automaton().status();
      }
      if (!status_.ok()) return;
    }
    state_ = next;
    if (state_ == Automaton::kDead) {
      invalid_ = true;
      bytes_.clear();
      return;
    }
    absl::StrAppend(&bytes_, grammar_->vocabulary().bytes(token));
  }
}

bool ConstrainedText::complete() {
  if (invalid_ || ended_ || !status_.ok()) return ended_;
  const Automaton::State state = Current();
  return grammar_->automaton().Accepts(state) &&
         !grammar_->automaton().Continues(state);
}

absl::StatusOr<std::shared_ptr<const TokenBits>> ConstrainedText::MaskOf(
    Automaton::State state) {
  FORETOKEN_ASSIGN_OR_RETURN(std::shared_ptr<const TokenBits> mask,
                             grammar_->masks().Mask(state));
  const bool nothing = std::all_of(mask->begin(), mask->end(),
                                   [](uint64_t word) { return word == 0; });
  if (!nothing && !grammar_->automaton().Accepts(state)) return mask;
  auto with_end = std::make_shared<TokenBits>(*mask);
  for (const TokenId token : end_tokens_) {
    if (token >= 0 && token < grammar_->vocabulary().size()) {
      SetToken(absl::MakeSpan(*with_end), token);
    }
  }
  return with_end;
}

absl::StatusOr<std::vector<std::shared_ptr<const TokenBits>>>
ConstrainedText::MaskRows(absl::Span<const TokenId> tokens,
                          absl::Span<const int32_t> parents) {
  std::vector<std::shared_ptr<const TokenBits>> masks(tokens.size());
  FORETOKEN_RETURN_IF_ERROR(status_);
  if (invalid_ || ended_ || tokens.empty()) return masks;
  std::vector<Automaton::State> states(tokens.size(), Automaton::kDead);
  states[0] = Current();
  FORETOKEN_RETURN_IF_ERROR(status_);
  for (size_t row = 0; row < tokens.size(); ++row) {
    if (row > 0) {
      const Automaton::State parent = states[parents[row]];
      if (parent != Automaton::kDead && !IsEnd(tokens[row])) {
        states[row] = After(parent, tokens[row]);
      }
    }
    if (states[row] == Automaton::kDead) continue;
    FORETOKEN_ASSIGN_OR_RETURN(masks[row], MaskOf(states[row]));
  }
  return masks;
}

std::vector<bool> ConstrainedText::Allowed(absl::Span<const TokenId> tokens,
                                           absl::Span<const int32_t> parents) {
  std::vector<bool> allowed(tokens.size(), true);
  if (invalid_ || ended_) return allowed;
  const Automaton::State root = Current();
  if (!status_.ok()) return allowed;
  std::vector<Automaton::State> states(tokens.size(), Automaton::kDead);
  for (size_t node = 0; node < tokens.size(); ++node) {
    const int32_t parent = parents[node];
    const Automaton::State from = parent < 0 ? root : states[parent];
    allowed[node] = false;
    if (from == Automaton::kDead) continue;
    if (IsEnd(tokens[node])) {
      allowed[node] = grammar_->automaton().Accepts(from);
    } else {
      states[node] = After(from, tokens[node]);
      allowed[node] = states[node] != Automaton::kDead;
    }
  }
  return allowed;
}

std::string ConstrainedText::Forced(size_t max) {
  if (invalid_ || ended_) return {};
  Automaton::State state = Current();
  if (!status_.ok()) return {};
  return grammar_->automaton().Forced(state, max);
}

}  // namespace foretoken::grammar
