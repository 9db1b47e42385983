#include "common/drafting/drafter_factory.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "common/drafting/crest/crest_drafter.h"
#include "common/drafting/fused_drafter.h"
#include "common/drafting/ngram_trie_drafter.h"
#include "common/drafting/phrase_pool_drafter.h"
#include "common/drafting/prompt_lookup.h"

namespace foretoken {
namespace {

// `off`: plain decoding.
class NullDrafter final : public Drafter {
 public:
  void StartRequest(absl::Span<const TokenId>) override {}
  void Commit(absl::Span<const TokenId>) override {}
  void Draft(int, DraftTree& tree) override { tree.Clear(); }
};

using Made = absl::StatusOr<std::unique_ptr<Drafter>>;

Made Missing(absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(what, " was given"));
}

struct Maker {
  const Mode& mode;
  const DrafterResources& resources;

  Made operator()(const OffOptions&) const {
    return std::make_unique<NullDrafter>();
  }
  Made operator()(const PromptLookupOptions& options) const {
    return std::make_unique<PromptLookupDrafter>(options);
  }
  Made operator()(const NgramTrieOptions& options) const {
    return std::make_unique<NgramTrieDrafter>(options);
  }
  Made operator()(PhrasePoolDrafterOptions options) const {
    options.keep = resources.keep_history;
    return std::make_unique<PhrasePoolDrafter>(options);
  }
  Made operator()(const CrestModeOptions&) const {
    if (resources.crest == nullptr) {
      return Missing("mode 'crest': no CREST datastore");
    }
    return std::make_unique<CrestDrafter>(resources.crest);
  }
  Made operator()(const AutoOptions& options) const {
    FusedOptions fused;
    fused.prior = resources.prior;
    fused.use_request = options.request;
    fused.use_history = options.history &&
                        (resources.keep_history || resources.preloaded_history);
    fused.keep_history = resources.keep_history;
    fused.price = static_cast<float>(options.price);
    return MakeFusedDrafter(fused);
  }
  template <typename Options>
  Made operator()(const Options&) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "mode '", mode.name(), "' drafts with a model, not by itself"));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(
    const Mode& mode, const DrafterResources& resources) {
  return std::visit(Maker{mode, resources}, mode.options());
}

}  // namespace foretoken
