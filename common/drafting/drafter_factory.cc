#include "common/drafting/drafter_factory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/drafting/crest/crest_drafter.h"
#include "common/drafting/fused_drafter.h"
#include "common/drafting/ngram_trie_drafter.h"
#include "common/drafting/phrase_pool_drafter.h"
#include "common/drafting/prompt_lookup.h"
#include "common/drafting/rest/rest_drafter.h"

namespace foretoken {
namespace {

// `off`: plain decoding.
class NullDrafter final : public Drafter {
 public:
  void StartRequest(absl::Span<const TokenId>) override {}
  void Commit(absl::Span<const TokenId>) override {}
  void Draft(int, DraftTree& tree) override { tree.Clear(); }
};

absl::StatusOr<std::unique_ptr<Drafter>> MakeOff(ModeReader& read) {
  FORETOKEN_RETURN_IF_ERROR(read.Finish());
  return std::make_unique<NullDrafter>();
}

absl::StatusOr<std::unique_ptr<Drafter>> MakePromptLookup(ModeReader& read) {
  PromptLookupOptions options;
  options.max_n = static_cast<int>(
      read.Int("max_n", options.max_n, 1, PromptLookupOptions::kMaxN));
  options.tokens = static_cast<int>(
      read.Int("tokens", options.tokens, 1, PromptLookupOptions::kMaxTokens));
  options.match = read.Choice("match", {"first", "latest"}) == 0
                      ? PromptLookupOptions::Match::kFirst
                      : PromptLookupOptions::Match::kLatest;
  FORETOKEN_RETURN_IF_ERROR(read.Finish());
  return std::make_unique<PromptLookupDrafter>(options);
}

absl::StatusOr<std::unique_ptr<Drafter>> MakeNgramTrie(
    ModeReader& read, const DrafterResources& resources) {
  NgramTrieOptions options;
  options.n = static_cast<int>(read.Int("n", options.n, 2, NgramTrie::kMaxN));
  options.longest_match = static_cast<int>(read.Int(
      "lp", std::min(options.longest_match, options.n - 1), 1, options.n - 1));
  options.num_draft = static_cast<int>(
      read.Int("num_draft", options.num_draft, 1, NgramTrieOptions::kMaxDraft));
  options.learn = read.Bool("learn", resources.learn_by_default);
  FORETOKEN_RETURN_IF_ERROR(read.Finish());
  return std::make_unique<NgramTrieDrafter>(options);
}

absl::StatusOr<std::unique_ptr<Drafter>> MakePhrasePool(
    ModeReader& read, const DrafterResources& resources) {
  PhrasePoolDrafterOptions options;
  options.pool.width = static_cast<int>(
      read.Int("w", options.pool.width, 1, PhrasePoolOptions::kMaxWidth));
  options.pool.phrase_tokens =
      static_cast<int>(read.Int("beta", options.pool.phrase_tokens, 2,
                                PhrasePoolOptions::kMaxPhraseTokens));
  options.suffixes = static_cast<int>(read.Int(
      "k", options.suffixes, 1, PhrasePoolDrafterOptions::kMaxSuffixes));
  options.keep = resources.keep_history;
  FORETOKEN_RETURN_IF_ERROR(read.Finish());
  return std::make_unique<PhrasePoolDrafter>(options);
}

absl::StatusOr<std::unique_ptr<Drafter>> MakeCrest(
    ModeReader& read, const DrafterResources& resources) {
  FORETOKEN_RETURN_IF_ERROR(read.Finish());
  if (resources.crest == nullptr) {
    return absl::FailedPreconditionError(
        "mode \"crest\": no CREST datastore was given");
  }
  return std::make_unique<CrestDrafter>(resources.crest);
}

absl::StatusOr<std::unique_ptr<Drafter>> MakeRest(
    ModeReader& read, const DrafterResources& resources) {
  RestOptions options;
  options.exact = read.Bool("exact", options.exact);
  options.max_n = static_cast<int>(read.Int(
      "max_n", options.exact ? 4 : options.max_n, 1, RestOptions::kMaxN));
  options.min_n = static_cast<int>(read.Int(
      "min_n", std::min(options.min_n, options.max_n), 1, options.max_n));
  FORETOKEN_RETURN_IF_ERROR(read.Finish());
  if (resources.rest == nullptr) {
    return absl::FailedPreconditionError(
        "mode \"rest\": no REST datastore was given");
  }
  return std::make_unique<RestDrafter>(resources.rest, options);
}

absl::StatusOr<std::unique_ptr<Drafter>> MakeAuto(
    ModeReader& read, const DrafterResources& resources) {
  FusedOptions options;
  options.prior = resources.prior;
  options.use_request = read.Bool("request", true);
  options.use_history = read.Bool("history", true) &&
                        (resources.keep_history || resources.preloaded_history);
  options.keep_history = resources.keep_history;
  options.price = static_cast<float>(read.Double("price", 0.0, 0.0, 1.0));
  FORETOKEN_RETURN_IF_ERROR(read.Finish());
  return MakeFusedDrafter(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(
    const ModeSpec& spec, const DrafterResources& resources) {
  ModeReader read(spec);
  if (spec.name() == "auto") return MakeAuto(read, resources);
  if (spec.name() == "off") return MakeOff(read);
  if (spec.name() == "prompt_lookup") return MakePromptLookup(read);
  if (spec.name() == "ngram_trie") return MakeNgramTrie(read, resources);
  if (spec.name() == "phrase_pool") return MakePhrasePool(read, resources);
  if (spec.name() == "crest") return MakeCrest(read, resources);
  if (spec.name() == "rest") return MakeRest(read, resources);
  return absl::InvalidArgumentError(
      absl::StrCat("mode \"", spec.name(),
                   "\": want auto, off, prompt_lookup, ngram_trie, "
                   "phrase_pool, crest or rest"));
}

}  // namespace foretoken
