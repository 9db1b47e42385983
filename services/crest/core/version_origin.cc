#include "services/crest/core/version_origin.h"

namespace foretoken::crest {

int ServedVersion::Lookup(absl::Span<const TokenId> context, int max_nodes,
                          LookupScratch& scratch) const {
  if (rest != nullptr) {
    return scratch.rest.Find(*rest, context, max_nodes, scratch.tree);
  }
  return index->Lookup(context, scratch.tree);
}

}  // namespace foretoken::crest
