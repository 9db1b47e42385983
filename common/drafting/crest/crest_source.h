// A backend for CREST look-ups: the in-memory index, or PostgreSQL.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_CREST_SOURCE_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_CREST_SOURCE_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/drafting/crest/crest_index.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/crest_tree.h"

namespace foretoken {

// Owned by one thread unless an implementation says otherwise.
class CrestSource {
 public:
  virtual ~CrestSource() = default;

  // As CrestIndex::Lookup: returns n of the longest stored suffix of `context`,
  // and its tree; 0 and an empty tree if there is none. An error means that the
  // store could not be queried; the round goes on without this draft.
  virtual absl::StatusOr<int> Lookup(absl::Span<const TokenId> context,
                                     CrestTree& tree) = 0;

  virtual const CrestMeta& meta() const = 0;
  // Bytes held by this process.
  virtual size_t bytes() const = 0;
};

// Thread-safe: the index is read-only.
class CrestIndexSource final : public CrestSource {
 public:
  explicit CrestIndexSource(CrestIndex index) : index_(std::move(index)) {}

  absl::StatusOr<int> Lookup(absl::Span<const TokenId> context,
                             CrestTree& tree) override {
    return index_.Lookup(context, tree);
  }
  const CrestMeta& meta() const override { return index_.meta(); }
  size_t bytes() const override { return index_.bytes(); }
  const CrestIndex& index() const { return index_; }

 private:
  const CrestIndex index_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_CREST_SOURCE_H_
