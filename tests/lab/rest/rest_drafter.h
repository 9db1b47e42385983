// REST: drafts the continuations of the longest match of the context in a
// datastore (rest_lookup.h).
//
// Source: REST, arXiv:2311.08252, section 3. Owned by one thread.
#ifndef FORETOKEN_TESTS_LAB_REST_REST_DRAFTER_H_
#define FORETOKEN_TESTS_LAB_REST_REST_DRAFTER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "common/drafting/crest/crest_tree.h"
#include "common/drafting/drafter.h"
#include "common/drafting/token_tail.h"
#include "tests/lab/rest/rest_lookup.h"
#include "tests/lab/rest/rest_store.h"

namespace foretoken {

class RestDrafter final : public Drafter {
 public:
  RestDrafter(std::shared_ptr<const RestStore> store,
              const RestOptions& options)
      : store_(std::move(store)), lookup_(options), tail_(options.max_n) {}

  void StartRequest(absl::Span<const TokenId> prompt) override {
    tail_.Reset(prompt);
  }
  void Commit(absl::Span<const TokenId> tokens) override {
    tail_.Append(tokens);
  }
  void Draft(int max_nodes, DraftTree& tree) override {
    lookup_.Find(*store_, tail_.tokens(), max_nodes, found_);
    found_.FillDraft(max_nodes, tree);
  }
  size_t SharedBytes() const override { return store_->bytes(); }

 private:
  const std::shared_ptr<const RestStore> store_;
  RestLookup lookup_;
  TokenTail tail_;
  CrestTree found_;
};

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_REST_REST_DRAFTER_H_
