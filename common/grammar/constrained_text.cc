#include "common/grammar/constrained_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::grammar {
namespace {

// Bounds the time in which a text is read again, looked at every so many bytes.
constexpr int64_t kMaxReplayWork = 5'000'000;
constexpr size_t kReplayBytes = 64;
// The same for the nodes of one draft.
constexpr int64_t kMaxAllowedWork = 500'000;

}  // namespace

LiveGrammar::LiveGrammar(std::shared_ptr<const Grammar> grammar,
                         std::shared_ptr<const TokenVocabulary> vocabulary,
                         int64_t max_growth, int64_t max_memory)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      max_memory_(max_memory) {
  set_max_growth(max_growth);
  Renew();
}

void LiveGrammar::set_max_growth(int64_t bytes) {
  max_growth_ = std::min(bytes, kDefaultGrowth);
}

void LiveGrammar::Renew() {
  masks_.reset();  // refers to the automaton
  automaton_ = std::make_unique<Automaton>(grammar_, max_memory_);
  // The masks have half of the growth; the rest is the automaton's.
  masks_ = std::make_unique<TokenMasks>(
      *automaton_, vocabulary_,
      TokenMasks::Options{.max_bytes = max_growth_ / 2});
  ++generation_;
  new_bytes_ = bytes();
}

void LiveGrammar::RenewIfLarge() {
  // After an error too: a new automaton has all of its memory again.
  if (bytes() > new_bytes_ + max_growth_ || !automaton_->status().ok()) {
    Renew();
  }
}

ConstrainedText::ConstrainedText(std::shared_ptr<LiveGrammar> grammar,
                                 std::vector<TokenId> end_tokens)
    : grammar_(std::move(grammar)),
      end_tokens_(std::move(end_tokens)),
      state_(grammar_->automaton().start()),
      generation_(grammar_->generation()) {
  const TokenVocabulary& vocabulary = grammar_->vocabulary();
  // A token with text of its own cannot mark the end: the text would have to
  // end in it.
  end_tokens_.erase(std::remove_if(end_tokens_.begin(), end_tokens_.end(),
                                   [&](TokenId token) {
                                     return !vocabulary.bytes(token).empty();
                                   }),
                    end_tokens_.end());
}

bool ConstrainedText::IsEnd(TokenId token) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), token) !=
         end_tokens_.end();
}

Automaton::State ConstrainedText::Current() {
  // Growth is looked at between tokens only, when no state number is held but
  // state_, which Replay finds again.
  grammar_->RenewIfLarge();
  if (generation_ != grammar_->generation()) Replay();
  return state_;
}

void ConstrainedText::Replay() {
  Automaton& automaton = grammar_->automaton();
  const int64_t last_work = automaton.work() + kMaxReplayWork;
  state_ = automaton.start();
  absl::string_view left = bytes_;
  // In parts, so that the bound on the work is noticed.
  while (!left.empty() && automaton.work() <= last_work) {
    const absl::string_view part = left.substr(0, kReplayBytes);
    state_ = automaton.Step(state_, part);
    left.remove_prefix(part.size());
  }
  generation_ = grammar_->generation();
  grammar_->NoteReplay();
  if (!status_.ok()) return;
  // The text kept to the constraint before: only a bound ends it.
  if (!automaton.status().ok()) {
    status_ = automaton.status();
  } else if (!left.empty()) {
    status_ = absl::ResourceExhaustedError(
        "the text takes too long to read again under its grammar");
  } else if (state_ == Automaton::kDead) {
    status_ = absl::InternalError("the text is lost in its constraint");
  }
}

Automaton::State ConstrainedText::After(Automaton::State state,
                                        TokenId token) {
  const absl::string_view bytes = grammar_->vocabulary().read_bytes(token);
  return bytes.empty() ? Automaton::kDead
                       : grammar_->automaton().Step(state, bytes);
}

void ConstrainedText::Append(absl::Span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (ended_ || !status_.ok()) return;
    if (IsEnd(token)) {
      if (!grammar_->automaton().Accepts(Current()) && status_.ok()) {
        status_ = absl::InvalidArgumentError(
            "the text ended before its constraint allows it");
      }
      ended_ = true;
      return;
    }
    Automaton::State next = After(Current(), token);
    if (next == Automaton::kDead && !grammar_->automaton().status().ok()) {
      // Once more in a new automaton, which begins with all of its memory.
      next = After(Current(), token);
      if (status_.ok()) status_ = grammar_->automaton().status();
      if (!status_.ok()) return;
    }
    if (next == Automaton::kDead) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("the constraint forbids token ", token, " of the text"));
      return;
    }
    state_ = next;
    absl::StrAppend(&bytes_, grammar_->vocabulary().read_bytes(token));
  }
}

bool ConstrainedText::complete() {
  if (ended_ || !status_.ok()) return status_.ok();
  const Automaton::State state = Current();
  return grammar_->automaton().Accepts(state) &&
         !grammar_->automaton().Continues(state);
}

absl::StatusOr<std::shared_ptr<const TokenBits>> ConstrainedText::MaskOf(
    Automaton::State state, int64_t max_work) {
  FORETOKEN_ASSIGN_OR_RETURN(std::shared_ptr<const TokenBits> mask,
                             grammar_->masks().Mask(state, max_work));
  // End tokens end the text, also where the grammar asks for one by its name.
  const bool may_end = grammar_->automaton().Accepts(state);
  const auto is_wrong = [&](TokenId token) {
    // A mask of the grammar may allow an end token as text, or forbid it where
    // the text may end.
    return token >= 0 && token < grammar_->vocabulary().size() &&
           HasToken(*mask, token) != may_end;
  };
  if (std::any_of(end_tokens_.begin(), end_tokens_.end(), is_wrong)) {
    // A copy: the mask is shared by all texts in this state.
    auto mended = std::make_shared<TokenBits>(*mask);
    for (const TokenId token : end_tokens_) {
      if (is_wrong(token)) {
        (*mended)[token >> 6] ^= uint64_t{1} << (token & 63);
      }
    }
    mask = std::move(mended);
  }
  if (std::all_of(mask->begin(), mask->end(),
                  [](uint64_t word) { return word == 0; })) {
    return absl::InvalidArgumentError(
        "no token of the vocabulary can continue the text");
  }
  return mask;
}

absl::StatusOr<std::vector<std::shared_ptr<const TokenBits>>>
ConstrainedText::MaskRows(absl::Span<const TokenId> tokens,
                          absl::Span<const int32_t> parents) {
  std::vector<std::shared_ptr<const TokenBits>> masks(tokens.size());
  FORETOKEN_RETURN_IF_ERROR(status_);
  if (ended_ || tokens.empty()) return masks;
  const int64_t max_work = grammar_->masks().options().max_work;
  std::vector<Automaton::State> states(tokens.size(), Automaton::kDead);
  states[0] = Current();
  FORETOKEN_RETURN_IF_ERROR(status_);
  auto first = MaskOf(states[0], max_work);
  if (absl::IsResourceExhausted(first.status())) {
    // What other texts have used up must not decide: once more in a new
    // automaton. (What they have computed can still make a mask possible that
    // is too expensive alone.)
    grammar_->Renew();
    states[0] = Current();
    FORETOKEN_RETURN_IF_ERROR(status_);
    first = MaskOf(states[0], max_work);
  }
  FORETOKEN_RETURN_IF_ERROR(first.status());
  masks[0] = *std::move(first);
  // Drafts are hints: all of their masks together may take as long as one.
  const Automaton& automaton = grammar_->automaton();
  const int64_t last_work = automaton.work() + max_work;
  for (size_t row = 1; row < tokens.size(); ++row) {
    const Automaton::State parent = states[parents[row]];
    // Below an end token nothing can follow.
    if (parent == Automaton::kDead || IsEnd(tokens[row])) continue;
    if (automaton.work() >= last_work || !automaton.status().ok()) break;
    states[row] = After(parent, tokens[row]);
    // Without memory for it the state may lack ways to go on.
    if (!automaton.status().ok()) {
      states[row] = Automaton::kDead;
      break;
    }
    if (states[row] == Automaton::kDead) continue;
    auto mask = MaskOf(states[row], last_work - automaton.work());
    if (!mask.ok()) {
      states[row] = Automaton::kDead;  // nor what is below it
      continue;
    }
    masks[row] = *std::move(mask);
  }
  return masks;
}

std::vector<bool> ConstrainedText::Allowed(absl::Span<const TokenId> tokens,
                                           absl::Span<const int32_t> parents) {
  std::vector<bool> allowed(tokens.size(), true);
  // Errors are reported by the masks; here a draft is only not thinned out.
  if (ended_ || !status_.ok()) return allowed;
  const Automaton::State root = Current();
  if (!status_.ok()) return allowed;
  std::vector<Automaton::State> states(tokens.size(), Automaton::kDead);
  const int64_t last_work = grammar_->automaton().work() + kMaxAllowedWork;
  for (size_t node = 0; node < tokens.size(); ++node) {
    // Those left stay allowed.
    if (grammar_->automaton().work() > last_work) break;
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
  if (!grammar_->automaton().status().ok()) {
    // Without memory nothing is known: keep the drafts, the verifier decides.
    allowed.assign(tokens.size(), true);
  }
  return allowed;
}

std::string ConstrainedText::Forced(size_t max) {
  if (ended_ || !status_.ok()) return {};
  Automaton::State state = Current();
  if (!status_.ok()) return {};
  std::string forced = grammar_->automaton().Forced(state, max);
  // Control bytes stand for special tokens and are no text that could be
  // drafted.
  forced.resize(
      std::min(forced.find(TokenVocabulary::kControlByte), forced.size()));
  return forced;
}

}  // namespace foretoken::grammar
