// Drafter `phrase_pool`: Ouroboros' pool alone, without a draft model.
//
// Every window of prompt and committed tokens enters the pool; the draft is the
// K newest phrases of the last token, merged by path. For tables only: if the
// shared pool is kept, it also contains prompts of other requests.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_DRAFTING_PHRASE_POOL_DRAFTER_H_
#define FORETOKEN_COMMON_DRAFTING_PHRASE_POOL_DRAFTER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/phrase_pool.h"
#include "common/drafting/token_tail.h"
#include "common/speculation/modes.h"

namespace foretoken {

class PhrasePoolDrafter final : public Drafter {
 public:
  explicit PhrasePoolDrafter(const PhrasePoolDrafterOptions& options);

  void StartRequest(absl::Span<const TokenId> prompt) override;
  void Commit(absl::Span<const TokenId> tokens) override;
  void Draft(int max_nodes, DraftTree& tree) override;
  void AddHistory(absl::Span<const TokenId> output) override;
  void ForgetShared() override;
  size_t RequestBytes() const override;
  size_t SharedBytes() const override;
  int64_t SharedTokens() const override;  // phrases: each counts as a token

 private:
  void StartFromHistory();

  const PhrasePoolDrafterOptions options_;
  PhrasePool pool_;               // the pool that drafts come from
  std::vector<TokenId> warm_;     // snapshot of AddHistory's phrases, if !keep
  bool history_in_pool_ = false;  // AddHistory's phrases are not in warm_ yet
  TokenTail window_;              // phrase_tokens tokens of the request
  std::vector<absl::Span<const TokenId>> newest_;  // scratch of Draft
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_PHRASE_POOL_DRAFTER_H_
