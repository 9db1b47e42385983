// The variants of a replay: modes with what they draft from, measured beside
// one another.
#ifndef FORETOKEN_TESTS_LAB_CLI_REPLAY_VARIANTS_H_
#define FORETOKEN_TESTS_LAB_CLI_REPLAY_VARIANTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json_fwd.h"
#include "tests/lab/cli/rest_options.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {

inline constexpr char kMeasuredPrice[] = "measured";
inline constexpr char kNoPrice[] = "none";

struct ReplayVariant {
  std::string name;  // in reports
  DrafterOptions drafter;
  RestStoreOptions rest;  // of mode rest
  // Mode auto: whether nodes that do not pay off are left out.
  std::string node_price = kMeasuredPrice;
};

// Reads a JSON array of objects with the fields "name" and "mode" and, as the
// flags of the same names say, "prior", "crest", "index_memory", "rest_corpus",
// "exclude_ids" (arrays), "node_price" and "max_tree_nodes", which is at most
// that of `shared`, and by default the same. What the variants share
// (tokenizer, state) is copied from `shared`. InvalidArgument names file,
// variant and field.
absl::StatusOr<std::vector<ReplayVariant>> ReadVariants(
    const std::string& file, const DrafterOptions& shared);

// The same fields again; those that are empty are left out.
Json VariantJson(const ReplayVariant& variant);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TESTS_LAB_CLI_REPLAY_VARIANTS_H_
