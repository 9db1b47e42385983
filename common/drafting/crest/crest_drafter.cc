#include "common/drafting/crest/crest_drafter.h"

namespace foretoken {

void CrestDrafter::Draft(int max_nodes, DraftTree& tree) {
  const absl::StatusOr<int> n = source_->Lookup(tail_.tokens(), found_);
  // A failed look-up drafts nothing; the round goes on, and status() tells why.
  status_ = n.status();
  if (!n.ok()) found_.Clear();
  found_.FillDraft(max_nodes, tree);
}

}  // namespace foretoken
