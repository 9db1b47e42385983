#include "services/crest/core/version_origin.h"

namespace foretoken::crest {

int ServedVersion::Lookup(absl::Span<const TokenId> context, int max_nodes,
                          CrestTree& tree) const {
  return other == nullptr ? index->Lookup(context, tree)
                          : other->Lookup(context, max_nodes, tree);
}

}  // namespace foretoken::crest
