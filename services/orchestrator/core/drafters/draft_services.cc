#include "services/orchestrator/core/drafters/draft_services.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace foretoken::orchestrator {
namespace {

// The service that keeps the phrases that the requests of a scope share.
constexpr absl::string_view kPhraseService = "trie_drafter";
// The service whose drafts cost passes of a model.
constexpr absl::string_view kModelService = "draft_worker";

ScopeState ScopeStateOf(absl::string_view service) {
  if (service == kPhraseService) return ScopeState::kHistory;
  // A datastore is the same for all.
  if (service == "crest") return ScopeState::kNone;
  return ScopeState::kCache;
}

Mode CrestMode(const std::string& datastore) {
  const absl::StatusOr<Mode> mode =
      Mode::Parse(absl::StrCat("crest:datastore=", datastore));
  // No datastore has a name that a mode cannot carry.
  return mode.ok() ? *mode : *Mode::Parse("crest");
}

}  // namespace

DraftServices::DraftServices(const DraftServicesOptions& options,
                             std::string tokenizer_fingerprint,
                             const MakeListener& make_listener, Clock clock)
    : options_(options),
      tokenizer_fingerprint_(std::move(tokenizer_fingerprint)) {
  for (const auto& [service, endpoints] : options.services) {
    // Looked up once for each service; requests share it.
    const auto made =
        services_.try_emplace(service, service, options.breaker, clock,
                              make_listener ? make_listener(service) : nullptr,
                              ScopeStateOf(service));
    std::vector<std::string> names;
    std::vector<DraftEndpoint> replicas;
    for (const auto& [name, endpoint] : endpoints) {
      names.push_back(name);
      replicas.push_back(endpoint);
    }
    made.first->second.SetMembers(names, [&](size_t i) { return replicas[i]; });
  }
}

DraftReplicas& DraftServices::Replicas(absl::string_view service) {
  const auto found = services_.find(service);
  FORETOKEN_CHECK(found != services_.end());
  return found->second;
}

ServedSourceOptions DraftServices::SourceOptions(const Mode& mode) const {
  ServedSourceOptions source;
  source.id = mode.info().drafter;
  source.mode = mode;
  source.tokenizer_fingerprint = tokenizer_fingerprint_;
  return source;
}

std::unique_ptr<DraftSource> DraftServices::Source(const Mode& mode,
                                                   Cancelled cancelled) {
  ServedSourceOptions source = SourceOptions(mode);
  source.cancelled = std::move(cancelled);
  // Drafts of a model take passes, so its source is told the prices, opens only
  // when asked, and shares pages rather than a history.
  source.reads_costs = source.opens_late = source.keeps_only_pages =
      mode.info().service == kModelService;
  if (const auto* ouroboros = mode.As<OuroborosOptions>()) {
    source.needs_rows = true;
    if (ouroboros->warm_start && Has(kPhraseService)) {
      source.phrases = &Replicas(kPhraseService);
      source.warm_phrases = options_.warm_phrases;
      source.phrase_tokens = ouroboros->beta;
    }
  }
  if (mode.As<AutoOptions>() != nullptr) {
    source.needs_rows = source.reads_candidates = true;
  }
  const auto* crest = mode.As<CrestModeOptions>();
  if (crest != nullptr && crest->datastore.empty()) {
    source.mode = CrestMode(options_.crest_datastore);
  }
  return std::make_unique<ServedSource>(std::move(source),
                                        Replicas(mode.info().service));
}

std::unique_ptr<DraftSource> DraftServices::PartOfAuto(const ModeInfo& part,
                                                       Cancelled cancelled) {
  if (part.service != kModelService) {
    return Source(*Mode::Parse(part.name), std::move(cancelled));
  }
  // The draft worker chooses how to draft for `auto`.
  ServedSourceOptions source = SourceOptions(*Mode::Parse("auto"));
  source.id = part.drafter;
  source.reads_costs = source.opens_late = source.keeps_only_pages = true;
  source.reads_hints = source.reads_in_shadow = true;
  source.cancelled = std::move(cancelled);
  return std::make_unique<ServedSource>(std::move(source),
                                        Replicas(part.service));
}

std::unique_ptr<DraftSource> DraftServices::PhraseKeeper(const Mode& mode) {
  if (!Has(kPhraseService)) return nullptr;
  ServedSourceOptions source = SourceOptions(mode);
  source.drafts = false;
  return std::make_unique<ServedSource>(std::move(source),
                                        Replicas(kPhraseService));
}

}  // namespace foretoken::orchestrator
