#include "services/orchestrator/core/session_services.h"

#include <utility>

#include "absl/strings/str_cat.h"

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

ServedSourceOptions SessionServices::Source(DrafterId id,
                                            const Mode& mode) const {
  ServedSourceOptions source;
  source.id = id;
  source.mode = mode;
  source.tokenizer_fingerprint = tokenizer_fingerprint_;
  return source;
}

std::unique_ptr<DraftSource> SessionServices::TrieDrafter(DrafterId id,
                                                          const Mode& mode) {
  return std::make_unique<ServedSource>(Source(id, mode), *trie_drafter_);
}

std::unique_ptr<DraftSource> SessionServices::PhraseKeeper(const Mode& mode) {
  ServedSourceOptions source = Source(DrafterId::kOuroboros, mode);
  source.drafts = false;
  return std::make_unique<ServedSource>(std::move(source), *trie_drafter_);
}

std::unique_ptr<DraftSource> SessionServices::DraftWorker(DrafterId id,
                                                          const Mode& mode) {
  ServedSourceOptions source = Source(id, mode);
  source.needs_rows = id == DrafterId::kOuroboros;
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
  const Mode mode =
      CrestMode(datastore.empty() ? options_.crest_datastore : datastore);
  return std::make_unique<ServedSource>(Source(DrafterId::kCrest, mode),
                                        *crest_);
}

}  // namespace foretoken::orchestrator
