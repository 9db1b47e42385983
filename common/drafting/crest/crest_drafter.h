// CREST drafter: the stored token tree of the longest stored n-gram that ends
// the committed tokens.
//
// Source: CREST, arXiv:2408.04678, section 3. Nodes are stored most frequent
// first, so a smaller budget uses a prefix of the tree. Owned by one thread.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_CREST_DRAFTER_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_CREST_DRAFTER_H_

#include <cstdint>
#include <memory>

#include "common/drafting/crest/crest_source.h"
#include "common/drafting/crest/crest_tree.h"
#include "common/drafting/drafter.h"
#include "common/drafting/token_tail.h"

namespace foretoken {

class CrestDrafter final : public Drafter {
 public:
  explicit CrestDrafter(std::shared_ptr<CrestSource> source)
      : source_(std::move(source)) {}

  void StartRequest(absl::Span<const TokenId> prompt) override {
    tail_.Reset(prompt);
  }
  void Commit(absl::Span<const TokenId> tokens) override {
    tail_.Append(tokens);
  }
  void Draft(int max_nodes, DraftTree& tree) override;
  absl::Status DraftStatus() const override { return status_; }
  size_t SharedBytes() const override { return source_->bytes(); }

 private:
  const std::shared_ptr<CrestSource> source_;
  TokenTail tail_{kMaxCrestN};
  CrestTree found_;
  absl::Status status_;  // status of the last look-up
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_CREST_DRAFTER_H_
