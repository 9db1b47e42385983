#include "services/orchestrator/core/modes.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_factory.h"
#include "services/orchestrator/core/lookahead.h"

namespace foretoken::orchestrator {
namespace {

bool IsServed(const ModeInfo& mode, const DraftServices* services) {
  switch (mode.needs) {
    case DraftService::kDraftWorker:
      return services != nullptr && services->has_draft_worker();
    case DraftService::kCrest:
      return services != nullptr && services->has_crest();
    case DraftService::kNone:
      break;
  }
  return true;
}

// Makes the sources of a mode whose services are there.
class SourceMaker {
 public:
  SourceMaker(const Mode& mode, const ModeContext& context, ModeSources& made)
      : mode_(mode), context_(context), made_(made) {}

  absl::Status operator()(const OffOptions&) { return absl::OkStatus(); }

  absl::Status operator()(const DraftModelOptions&) {
    Add(context_.services->DraftWorker(id(), mode_));
    return absl::OkStatus();
  }

  absl::Status operator()(const LookaheadOptions& options) {
    Add(std::make_unique<LookaheadSource>(options));
    return absl::OkStatus();
  }

  absl::Status operator()(const OuroborosOptions&) {
    Add(context_.services->DraftWorker(id(), mode_));
    if (has_trie_drafter()) Add(context_.services->PhraseKeeper(mode_));
    return absl::OkStatus();
  }

  absl::Status operator()(const CrestModeOptions& options) {
    Add(context_.services->Crest(options.datastore));
    return absl::OkStatus();
  }

  absl::Status operator()(const AutoOptions&) {
    made_.economical = true;
    DraftServices* const services = context_.services;
    if (services != nullptr && services->has_draft_worker()) {
      FORETOKEN_ASSIGN_OR_RETURN(const Mode chain, Mode::Parse("draft_model"));
      Add(services->DraftWorker(DrafterId::kDraftModel, chain));
    }
    if (services != nullptr && services->has_crest()) Add(services->Crest(""));
    return AddTrieDrafter();
  }

  // The others draft in this thread, or in the trie drafter.
  template <typename Options>
  absl::Status operator()(const Options&) {
    return mode_.info().in_trie_drafter ? AddTrieDrafter() : AddLocal();
  }

 private:
  DrafterId id() const { return mode_.info().drafter; }
  bool has_trie_drafter() const {
    return context_.services != nullptr &&
           context_.services->has_trie_drafter();
  }

  void Add(std::unique_ptr<DraftSource> source) {
    made_.sources.push_back(std::move(source));
  }

  absl::Status AddLocal() {
    FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter,
                               MakeDrafter(mode_, DrafterResources()));
    Add(std::make_unique<LocalSource>(id(), std::move(drafter),
                                      context_.clock));
    return absl::OkStatus();
  }

  // The service where it is there, else the same drafter in this thread.
  absl::Status AddTrieDrafter() {
    if (!has_trie_drafter()) return AddLocal();
    Add(context_.services->TrieDrafter(id(), mode_));
    return absl::OkStatus();
  }

  const Mode& mode_;
  const ModeContext& context_;
  ModeSources& made_;
};

}  // namespace

absl::StatusOr<ModeSources> MakeSources(const Mode& mode,
                                        const ModeContext& context) {
  FORETOKEN_RETURN_IF_ERROR(mode.CheckFits(context.limits));
  if (!IsServed(mode.info(), context.services)) {
    const bool crest = mode.info().needs == DraftService::kCrest;
    return absl::UnimplementedError(absl::StrCat(
        "mode '", mode.name(), "' is not served here: its ",
        crest ? "crest" : "draft_worker", " service is not configured"));
  }
  ModeSources made;
  FORETOKEN_RETURN_IF_ERROR(
      std::visit(SourceMaker(mode, context, made), mode.options()));
  return made;
}

std::vector<std::string> ServedModes(const DraftServices* services) {
  std::vector<std::string> served;
  for (const ModeInfo& mode : ModeTable()) {
    if (mode.in_requests && IsServed(mode, services)) {
      served.emplace_back(mode.name);
    }
  }
  return served;
}

}  // namespace foretoken::orchestrator
