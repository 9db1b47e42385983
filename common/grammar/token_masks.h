// TokenMasks: which tokens of a vocabulary may follow a state of an automaton.
//
// A mask is made by one walk of the vocabulary's trie, in step with the
// automaton. Two things need no walk: where a string may go on with any plain
// characters, the tokens that consist of nothing else are allowed at once; and
// where the automaton stays on a state with all characters of a subtree
// (Automaton::StaysOn), so are all tokens below. Masks are kept by state,
// within a bound.
// Owned by one thread.
#ifndef FORETOKEN_COMMON_GRAMMAR_TOKEN_MASKS_H_
#define FORETOKEN_COMMON_GRAMMAR_TOKEN_MASKS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/grammar/automaton.h"
#include "common/grammar/token_trie.h"

namespace foretoken::grammar {

class TokenMasks {
 public:
  struct Options {
    int64_t max_bytes = int64_t{16} << 20;  // of the masks that are kept
    // Automaton::work() of one mask: some 200 ms.
    int64_t max_work = 2'000'000;
  };

  // `automaton` must outlive the object.
  TokenMasks(Automaton& automaton,
             std::shared_ptr<const TokenVocabulary> vocabulary,
             const Options& options);
  TokenMasks(Automaton& automaton,
             std::shared_ptr<const TokenVocabulary> vocabulary)
      : TokenMasks(automaton, std::move(vocabulary), Options()) {}

  // The tokens that may follow `state`, as bits. End tokens are not among them:
  // they may follow where Accepts(state). ResourceExhausted if that takes too
  // long to find out.
  absl::StatusOr<std::shared_ptr<const TokenBits>> Mask(
      Automaton::State state) {
    return Mask(state, options_.max_work);
  }
  absl::StatusOr<std::shared_ptr<const TokenBits>> Mask(Automaton::State state,
                                                        int64_t max_work);
  const Options& options() const { return options_; }

  int64_t bytes() const { return bytes_; }
  int64_t computed() const { return computed_; }  // masks that were not kept

 private:
  absl::Status Compute(Automaton::State state, int64_t max_work,
                       absl::Span<uint64_t> mask);

  Automaton& automaton_;
  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  const Options options_;
  absl::flat_hash_map<Automaton::State, std::shared_ptr<const TokenBits>>
      kept_;
  std::vector<Automaton::State> path_;  // of the walk, by depth
  int64_t bytes_ = 0;
  int64_t computed_ = 0;
};

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_TOKEN_MASKS_H_
