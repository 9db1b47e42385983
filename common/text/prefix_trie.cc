#include "common/text/prefix_trie.h"

namespace foretoken {
namespace {

// One hash map for all edges, keyed by node and byte: node ids are below 2^31,
// so both fit into 64 bits. Vocabularies are large and sparse; a table of 256
// children per node would cost a kilobyte each.
uint64_t Edge(int32_t node, char byte) {
  return (static_cast<uint64_t>(node) << 8) | static_cast<uint8_t>(byte);
}

}  // namespace

void PrefixTrie::Add(absl::string_view string, int32_t value) {
  if (string.empty()) return;
  begins_[static_cast<uint8_t>(string[0])] = true;
  int32_t node = 0;
  for (const char byte : string) {
    const auto [edge, is_new] = edges_.emplace(Edge(node, byte), nodes_);
    if (is_new) ++nodes_;
    node = edge->second;
  }
  values_[node] = value;
}

PrefixTrie::Match PrefixTrie::Longest(absl::string_view text) const {
  Match best;
  // Called at every position of a text: most bytes begin no string and need no
  // look-up.
  if (text.empty() || !MayBegin(text[0])) return best;
  int32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto edge = edges_.find(Edge(node, text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    const auto value = values_.find(node);
    if (value != values_.end()) best = {i + 1, value->second};
  }
  return best;
}

}  // namespace foretoken
