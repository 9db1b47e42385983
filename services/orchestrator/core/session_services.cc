#include "services/orchestrator/core/session_services.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/orchestrator/core/served_source.h"

namespace foretoken::orchestrator {
namespace {

Mode CrestMode(const std::string& datastore) {
  const absl::StatusOr<Mode> mode =
      Mode::Parse(absl::StrCat("crest:datastore=", datastore));
  // (A name that no mode can carry is that of no datastore either.)
  return mode.ok() ? *mode : *Mode::Parse("crest");
}

}  // namespace

SessionServices::SessionServices(const SessionServicesOptions& options,
                                 std::string tokenizer_fingerprint,
                                 const MakeListener& make_listener, Clock clock)
    : options_(options),
      tokenizer_fingerprint_(std::move(tokenizer_fingerprint)) {
  const auto peer = [&](const char* name,
                        const std::shared_ptr<DraftSessions>& sessions) {
    return sessions == nullptr
               ? nullptr
               : std::make_unique<DraftPeer>(
                     name, *sessions, options.breaker, clock,
                     make_listener ? make_listener(name) : nullptr);
  };
  trie_drafter_ = peer("trie_drafter", options.trie_drafter);
  draft_worker_ = peer("draft_worker", options.draft_worker);
  crest_ = peer("crest", options.crest);
}

std::unique_ptr<DraftSource> SessionServices::TrieDrafter(DrafterId id,
                                                          const Mode& mode) {
  ServedSourceOptions source;
  source.id = id;
  source.mode = mode;
  source.tokenizer_fingerprint = tokenizer_fingerprint_;
  return std::make_unique<ServedSource>(std::move(source), *trie_drafter_);
}

std::unique_ptr<DraftSource> SessionServices::PhraseKeeper(const Mode& mode) {
  ServedSourceOptions source;
  source.id = DrafterId::kOuroboros;
  source.drafts = false;
  source.mode = mode;
  source.tokenizer_fingerprint = tokenizer_fingerprint_;
  return std::make_unique<ServedSource>(std::move(source), *trie_drafter_);
}

std::unique_ptr<DraftSource> SessionServices::DraftWorker(DrafterId id,
                                                          const Mode& mode) {
  ServedSourceOptions source;
  source.id = id;
  source.needs_rows = id == DrafterId::kOuroboros;
  source.mode = mode;
  source.tokenizer_fingerprint = tokenizer_fingerprint_;
  const OuroborosOptions* const ouroboros = mode.As<OuroborosOptions>();
  if (ouroboros != nullptr && ouroboros->warm_start) {
    source.phrases = options_.phrases.get();
    source.warm_phrases = options_.warm_phrases;
    source.phrase_tokens = ouroboros->beta;
  }
  return std::make_unique<ServedSource>(std::move(source), *draft_worker_);
}

std::unique_ptr<DraftSource> SessionServices::Crest(
    const std::string& datastore) {
  ServedSourceOptions source;
  source.id = DrafterId::kCrest;
  source.mode =
      CrestMode(datastore.empty() ? options_.crest_datastore : datastore);
  source.tokenizer_fingerprint = tokenizer_fingerprint_;
  return std::make_unique<ServedSource>(std::move(source), *crest_);
}

}  // namespace foretoken::orchestrator
