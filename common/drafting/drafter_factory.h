// The drafters by name: what `--mode MODE[:key=value,...]` means.
//
//   off
//   prompt_lookup:max_n=3,tokens=10,match=first|latest
//   ngram_trie:n=13,lp=3,num_draft=32,learn=0|1
//   phrase_pool:w=20,beta=8,k=3
//   crest
//   rest:min_n=2,exact=0|1,max_n=16 (4 where exact)
//   auto:request=1,history=1 (0 leaves a source out),price=0 (path probability
//     that a node must have; 0 fills the budget)
#ifndef FORETOKEN_COMMON_DRAFTING_DRAFTER_FACTORY_H_
#define FORETOKEN_COMMON_DRAFTING_DRAFTER_FACTORY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/drafting/drafter.h"
#include "common/speculation/mode_spec.h"

namespace foretoken {

class CrestSource;
class RestStore;
class StaticPrior;

// What a drafter may use beside the request itself.
struct DrafterResources {
  std::shared_ptr<const StaticPrior> prior;  // null: none
  std::shared_ptr<CrestSource> crest;        // `crest` needs it
  std::shared_ptr<const RestStore> rest;     // `rest` needs it
  // Committed output of a request serves the requests after it.
  bool keep_history = false;
  // AddHistory will be called, whatever keep_history says.
  bool preloaded_history = false;
  // `learn` of ngram_trie where the spec does not give it.
  bool learn_by_default = false;
};

// InvalidArgument, naming the mode, key or value, for a mode that drafts
// otherwise or not at all here, an unknown key, or a value out of its range;
// FailedPrecondition for a mode whose resource is missing.
absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(
    const ModeSpec& spec, const DrafterResources& resources);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_DRAFTER_FACTORY_H_
