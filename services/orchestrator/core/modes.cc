#include "services/orchestrator/core/modes.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_factory.h"
#include "common/drafting/ngram_trie.h"
#include "common/drafting/phrase_pool.h"
#include "services/orchestrator/core/lookahead.h"

namespace foretoken::orchestrator {
namespace {

// In the order of the mode table.
constexpr std::array<absl::string_view, 8> kModes = {
    "off",        "draft_model", "lookahead",     "ouroboros",
    "ngram_trie", "crest",       "prompt_lookup", "auto"};

// Drafting services that a mode cannot do without.
bool IsServed(absl::string_view mode, const DraftServices* services) {
  if (mode == "draft_model" || mode == "ouroboros") {
    return services != nullptr && services->has_draft_worker();
  }
  if (mode == "crest") return services != nullptr && services->has_crest();
  return true;
}

// What the draft worker and the trie drafter take, checked here so that a bad
// parameter is the client's error and not a drafter that fails in every round.
absl::Status CheckDraftModel(const ModeSpec& mode, const TreeLimits& limits) {
  ModeReader read(mode);
  read.Int("gamma", 5, 1, limits.max_draft_nodes);
  return read.Finish();
}

absl::Status CheckOuroboros(const ModeSpec& mode, const TreeLimits& limits) {
  ModeReader read(mode);
  const int64_t gamma = read.Int("gamma", 12, 1, limits.max_draft_nodes);
  const int64_t window =
      read.Int("window", 20, 1, PhrasePoolOptions::kMaxWidth);
  const int64_t beta =
      read.Int("beta", 8, 2, PhrasePoolOptions::kMaxPhraseTokens);
  read.Int("suffixes", 3, 0, limits.max_draft_nodes);
  for (const char* key : {"inspiration", "refinement", "warm_start"}) {
    read.Bool(key, true);
  }
  read.Int("passes", 0, 0, limits.max_draft_nodes);
  const int64_t columns =
      read.Int("lookahead", window, 0, PhrasePoolOptions::kMaxWidth);
  read.Bool("context", false);
  FORETOKEN_RETURN_IF_ERROR(read.Finish());
  // Of the draft model's widest pass: the chain, the pool's phrases, and the
  // lookahead window while it fills or full.
  int64_t lookahead = 0;
  for (int64_t levels = 1; levels < beta && columns > 0; ++levels) {
    lookahead = std::max(lookahead, levels * (columns + beta - 1 - levels) - 1);
  }
  const int64_t rows = gamma - 1 + window * (beta - 1) + lookahead;
  if (rows > limits.max_rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("ouroboros: window, lookahead, beta and gamma need ", rows,
                     " rows of a pass, want at most ", limits.max_rows));
  }
  return absl::OkStatus();
}

// The mode as the drafter's factory reads it: it says `lp` for match_length.
absl::StatusOr<ModeSpec> FactoryNgramTrie(const ModeSpec& mode) {
  std::vector<std::pair<std::string, std::string>> parameters =
      mode.parameters();
  for (auto& [key, value] : parameters) {
    if (key == "match_length") key = "lp";
  }
  return ModeSpec::Create(mode.name(), std::move(parameters));
}

absl::StatusOr<std::unique_ptr<DraftSource>> Local(DrafterId id,
                                                   const ModeSpec& mode,
                                                   const Clock& clock) {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter,
                             MakeDrafter(mode, DrafterResources()));
  return std::make_unique<LocalSource>(id, std::move(drafter), clock);
}

class SourceMaker {
 public:
  SourceMaker(const ModeSpec& mode, const ModeContext& context)
      : mode_(mode), context_(context) {}

  absl::Status Make(ModeSources& made) {
    const std::string& name = mode_.name();
    if (name == "off") return ModeReader(mode_).Finish();
    if (name == "draft_model") return MakeDraftModel(made);
    if (name == "lookahead") return MakeLookahead(made);
    if (name == "ouroboros") return MakeOuroboros(made);
    if (name == "ngram_trie") return MakeNgramTrie(made);
    if (name == "crest") return MakeCrest(made);
    if (name == "auto") return MakeAuto(made);
    FORETOKEN_ASSIGN_OR_RETURN(
        made.sources.emplace_back(),
        Local(DrafterId::kPromptLookup, mode_, context_.clock));
    return absl::OkStatus();
  }

 private:
  absl::Status MakeDraftModel(ModeSources& made) {
    FORETOKEN_RETURN_IF_ERROR(CheckDraftModel(mode_, context_.limits));
    made.sources.push_back(
        context_.services->DraftWorker(DrafterId::kDraftModel, mode_));
    return absl::OkStatus();
  }

  absl::Status MakeLookahead(ModeSources& made) {
    FORETOKEN_ASSIGN_OR_RETURN(const LookaheadOptions options,
                               LookaheadOptions::Read(mode_, context_.limits));
    made.sources.push_back(std::make_unique<LookaheadSource>(options));
    return absl::OkStatus();
  }

  absl::Status MakeOuroboros(ModeSources& made) {
    FORETOKEN_RETURN_IF_ERROR(CheckOuroboros(mode_, context_.limits));
    made.sources.push_back(
        context_.services->DraftWorker(DrafterId::kOuroboros, mode_));
    if (context_.services->has_trie_drafter()) {
      made.sources.push_back(context_.services->PhraseKeeper(mode_));
    }
    return absl::OkStatus();
  }

  absl::Status MakeNgramTrie(ModeSources& made) {
    // Also where the service drafts: it reads the same parameters.
    FORETOKEN_ASSIGN_OR_RETURN(const ModeSpec mode, FactoryNgramTrie(mode_));
    FORETOKEN_ASSIGN_OR_RETURN(
        std::unique_ptr<DraftSource> local,
        Local(DrafterId::kNgramTrie, mode, context_.clock));
    const bool remote =
        context_.services != nullptr && context_.services->has_trie_drafter();
    made.sources.push_back(
        remote ? context_.services->TrieDrafter(DrafterId::kNgramTrie, mode_)
               : std::move(local));
    return absl::OkStatus();
  }

  absl::Status MakeCrest(ModeSources& made) {
    ModeReader read(mode_);
    const std::string datastore = read.String("datastore", "");
    FORETOKEN_RETURN_IF_ERROR(read.Finish());
    made.sources.push_back(context_.services->Crest(datastore));
    return absl::OkStatus();
  }

  absl::Status MakeAuto(ModeSources& made) {
    FORETOKEN_RETURN_IF_ERROR(ModeReader(mode_).Finish());
    made.economical = true;
    DraftServices* const services = context_.services;
    if (services != nullptr && services->has_draft_worker()) {
      FORETOKEN_ASSIGN_OR_RETURN(const ModeSpec mode,
                                 ModeSpec::Parse("draft_model"));
      made.sources.push_back(
          services->DraftWorker(DrafterId::kDraftModel, mode));
    }
    if (services != nullptr && services->has_crest()) {
      made.sources.push_back(services->Crest(""));
    }
    if (services != nullptr && services->has_trie_drafter()) {
      made.sources.push_back(services->TrieDrafter(DrafterId::kFused, mode_));
    } else {
      FORETOKEN_ASSIGN_OR_RETURN(
          made.sources.emplace_back(),
          Local(DrafterId::kFused, mode_, context_.clock));
    }
    return absl::OkStatus();
  }

  const ModeSpec& mode_;
  const ModeContext& context_;
};

}  // namespace

absl::StatusOr<ModeSources> MakeSources(const ModeSpec& mode,
                                        const ModeContext& context) {
  if (std::find(kModes.begin(), kModes.end(), mode.name()) == kModes.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown mode '", mode.name(), "', want one of ",
                     absl::StrJoin(kModes, " ")));
  }
  if (!IsServed(mode.name(), context.services)) {
    return absl::UnimplementedError(
        absl::StrCat("mode '", mode.name(), "' is not served here: its ",
                     mode.name() == "crest" ? "crest" : "draft_worker",
                     " service is not configured"));
  }
  ModeSources made;
  FORETOKEN_RETURN_IF_ERROR(SourceMaker(mode, context).Make(made));
  return made;
}

std::vector<std::string> ServedModes(const DraftServices* services) {
  std::vector<std::string> served;
  for (const absl::string_view mode : kModes) {
    if (IsServed(mode, services)) served.emplace_back(mode);
  }
  return served;
}

}  // namespace foretoken::orchestrator
