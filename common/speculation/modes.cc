#include "common/speculation/modes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/speculation/ouroboros_presets.h"

namespace foretoken {
namespace {

ModeOptions ReadOff(ModeReader&, ModeUse) { return OffOptions(); }

ModeOptions ReadDraftModel(ModeReader& read, ModeUse) {
  DraftModelOptions options;
  options.gamma = read.IntOrAuto("gamma", 1, kMaxDraftNodes);
  return options;
}

ModeOptions ReadLookahead(ModeReader& read, ModeUse) {
  using O = LookaheadOptions;
  O options;
  options.window = read.Int("window", options.window, 1, O::kMaxWindow);
  options.ngram = read.Int("ngram", options.ngram, 2, O::kMaxNgram);
  options.pool = read.Int("pool", options.pool, 1, O::kMaxPool);
  return options;
}

ModeOptions ReadOuroboros(ModeReader& read, ModeUse) {
  using Pool = PhrasePoolOptions;
  OuroborosOptions options;
  options.gamma = read.Int("gamma", options.gamma, 1, kMaxDraftNodes);
  options.window = read.Int("window", options.window, 1, Pool::kMaxWidth);
  options.beta = read.Int("beta", options.beta, 2, Pool::kMaxPhraseTokens);
  options.suffixes = read.Int("suffixes", options.suffixes, 0, kMaxDraftNodes);
  options.inspiration = read.Bool("inspiration", options.inspiration);
  options.refinement = read.Bool("refinement", options.refinement);
  options.warm_start = read.Bool("warm_start", options.warm_start);
  options.passes = read.Int("passes", options.passes, 0, kMaxDraftNodes);
  // `lookahead` falls back to the window as it was given, not to a constant:
  // the paper uses the same number for both.
  options.lookahead = read.Int("lookahead", options.window, 0, Pool::kMaxWidth);
  options.context = read.Bool("context", options.context);
  // Only a mode without any parameter is by price: one named value means that
  // the request wants the paper's fixed shape.
  return read.spec().parameters().empty() ? OuroborosOptions::ByPrice()
                                          : options;
}

ModeOptions ReadNgramTrie(ModeReader& read, ModeUse use) {
  using O = NgramTrieOptions;
  const bool replay = use == ModeUse::kReplay;
  O options;
  options.n = read.Int("n", options.n, 2, O::kMaxN);
  // A context of n - 1 tokens at most precedes the last token of an n-gram; `n`
  // The replay tool keeps the paper's name for the parameter.
  // is read before for that reason.
  options.longest_match = read.Int(
      replay ? "lp" : "match_length",
      std::min(options.longest_match, options.n - 1), 1, options.n - 1);
  options.num_draft = read.Int("num_draft", options.num_draft, 1, O::kMaxDraft);
  // Requests learn from their output. The paper's trie, whose figures replay
  // reproduces, does not.
  options.learn = read.Bool("learn", !replay);
  return options;
}

ModeOptions ReadCrest(ModeReader& read, ModeUse use) {
  CrestModeOptions options;
  // Replay names its datastore with a flag.
  if (use == ModeUse::kRequest) options.datastore = read.Text("datastore");
  return options;
}

ModeOptions ReadPromptLookup(ModeReader& read, ModeUse) {
  using O = PromptLookupOptions;
  O options;
  options.max_n = read.Int("max_n", options.max_n, 1, O::kMaxN);
  options.tokens = read.Int("tokens", options.tokens, 1, O::kMaxTokens);
  options.match =
      static_cast<O::Match>(read.Choice("match", {"first", "latest"}));
  return options;
}

ModeOptions ReadPhrasePool(ModeReader& read, ModeUse) {
  using O = PhrasePoolOptions;
  PhrasePoolDrafterOptions options;
  O& pool = options.pool;
  pool.width = read.Int("w", pool.width, 1, O::kMaxWidth);
  pool.phrase_tokens =
      read.Int("beta", pool.phrase_tokens, 2, O::kMaxPhraseTokens);
  options.suffixes = read.Int("k", options.suffixes, 1,
                              PhrasePoolDrafterOptions::kMaxSuffixes);
  return options;
}

ModeOptions ReadAuto(ModeReader& read, ModeUse use) {
  AutoOptions options;
  // Requests leave all of it to the drafter; replay switches parts off to
  // measure each.
  if (use == ModeUse::kRequest) return options;
  options.request = read.Bool("request", options.request);
  options.history = read.Bool("history", options.history);
  options.price = read.Double("price", options.price, 0.0, 1.0);
  return options;
}

constexpr absl::string_view kOuroboros = "ouroboros";

using Id = DrafterId;
// Name, drafter, service, needs_service, in_auto, in_requests, in_replay, read.
constexpr ModeInfo kTable[] = {
    {"off", Id::kTarget, "", false, false, true, true, ReadOff},
    {"draft_model", Id::kDraftModel, "draft_worker", true, false, true, false,
     ReadDraftModel},
    {"lookahead", Id::kLookahead, "", false, false, true, false, ReadLookahead},
    {kOuroboros, Id::kOuroboros, "draft_worker", true, true, true, false,
     ReadOuroboros},
    {"ngram_trie", Id::kNgramTrie, "trie_drafter", false, false, true, true,
     ReadNgramTrie},
    {"crest", Id::kCrest, "crest", true, true, true, true, ReadCrest},
    {"prompt_lookup", Id::kPromptLookup, "", false, false, true, true,
     ReadPromptLookup},
    {"phrase_pool", Id::kOuroboros, "", false, false, false, true,
     ReadPhrasePool},
    {"auto", Id::kFused, "trie_drafter", false, false, true, true, ReadAuto},
};

std::string Names(ModeUse use) {
  std::vector<absl::string_view> names;
  for (const ModeInfo& mode : kTable) {
    if (mode.Has(use)) names.push_back(mode.name);
  }
  return absl::StrJoin(names, " ");
}

std::string PresetNames() {
  return absl::StrJoin(OuroborosPresets(), "/",
                       [](std::string* out, const OuroborosPreset& preset) {
                         absl::StrAppend(out, preset.name);
                       });
}

// Leave out options that are the drafter's to choose: a message has no value
// for them.
absl::StatusOr<ModeSpec> WithoutAuto(const ModeReader& read) {
  auto parameters = read.spec().parameters();
  for (const ModeParameter& parameter : read.parameters()) {
    // Only "auto" itself is left out; a number that was given stays.
    if (parameter.default_value != kAutoValue) continue;
    parameters.erase(
        std::remove(parameters.begin(), parameters.end(),
                    std::pair(parameter.key, std::string(kAutoValue))),
        parameters.end());
  }
  return ModeSpec::Create(read.spec().name(), std::move(parameters));
}

// --- Bounds of a round -------------------------------------------------------

absl::Status CheckNodes(absl::string_view key, int value,
                        const TreeLimits& limits) {
  if (value <= limits.max_draft_nodes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameter '", key, "' is ", value, ", want at most ",
                   limits.max_draft_nodes, " draft nodes"));
}

absl::Status CheckRows(absl::string_view keys, absl::string_view what,
                       int64_t rows, int64_t room) {
  if (rows <= room) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      keys, " need ", rows, " ", what, ", there is room for ", room));
}

struct Fits {
  const TreeLimits& limits;

  absl::Status operator()(const DraftModelOptions& options) const {
    // Without a number the drafter chooses its own, within the limits; 1 always
    // fits.
    return CheckNodes("gamma", options.gamma.value_or(1), limits);
  }
  // The target's own window takes rows besides those of the draft.
  absl::Status operator()(const LookaheadOptions& options) const {
    return CheckRows(
        absl::StrCat("window=", options.window, " and ngram=", options.ngram),
        "probe rows", options.WindowRows(),
        limits.max_rows - limits.max_draft_nodes);
  }
  absl::Status operator()(const OuroborosOptions& options) const {
    FORETOKEN_RETURN_IF_ERROR(CheckNodes("gamma", options.gamma, limits));
    FORETOKEN_RETURN_IF_ERROR(CheckNodes("suffixes", options.suffixes, limits));
    FORETOKEN_RETURN_IF_ERROR(CheckNodes("passes", options.passes, limits));
    return CheckRows(
        absl::StrCat("window=", options.window,
                     ", lookahead=", options.LookaheadColumns(),
                     ", beta=", options.beta, " and gamma=", options.gamma),
        "rows of a pass", options.MaxRows(), limits.max_rows);
  }
  // The other modes never exceed the requested number of nodes.
  template <typename Options>
  absl::Status operator()(const Options&) const {
    return absl::OkStatus();
  }
};

}  // namespace

// A full window has N-1 levels. While only `levels` of them are filled, each
// has one extra column per missing level.
int32_t LookaheadRows(int columns, int ngram) {
  int32_t most = 0;
  for (int levels = 1; levels < ngram && columns > 0; ++levels) {
    // Minus 1: the first column of level 1 is the last committed token, row 0,
    // which is counted elsewhere.
    most = std::max(most, levels * (columns + ngram - 1 - levels) - 1);
  }
  return most;
}

// Wide enough for phrases of a few words; the pool's newest phrases are the
// likeliest, so that few of them fill a cheap pass.
OuroborosOptions OuroborosOptions::ByPrice() {
  OuroborosOptions options;
  options.window = 4;
  options.beta = 4;
  options.suffixes = 1;
  options.inspiration = false;
  options.refinement = false;
  options.lookahead = 0;
  options.context = true;
  options.by_price = true;
  return options;
}

// A pass over fewer than gamma tokens may add a whole phrase and one token.
int32_t OuroborosOptions::MaxRows() const {
  return gamma - 1 + window * (beta - 1) +
         LookaheadRows(LookaheadColumns(), beta);
}

absl::Span<const ModeInfo> ModeTable() { return kTable; }

std::vector<std::string> DraftingServices() {
  std::vector<std::string> services;
  for (const ModeInfo& mode : kTable) {
    // Several modes use one service; it is listed once, at its first mode.
    if (!mode.service.empty() &&
        !absl::c_linear_search(services, mode.service)) {
      services.emplace_back(mode.service);
    }
  }
  return services;
}

std::vector<ModeParameter> ParametersOf(const ModeInfo& mode, ModeUse use) {
  // The reader's questions tell the parameters, so help and parser cannot
  // disagree.
  const ModeSpec none;
  ModeReader read(none);
  mode.read(read, use);
  return read.parameters();
}

absl::Status CheckModeHasSource(const Mode& mode, bool has_draft_model,
                                bool has_datastore) {
  const absl::string_view service = mode.info().service;
  const bool drafts_with_model = service == "draft_worker";
  const bool has_source = drafts_with_model ? has_draft_model : has_datastore;
  if (!mode.info().needs_service || has_source) return absl::OkStatus();
  return absl::InvalidArgumentError(
      drafts_with_model
          ? absl::StrCat("mode '", mode.name(),
                         "' needs a draft model: give --draft-model")
          : absl::StrCat("mode '", mode.name(),
                         "' needs a datastore: give --crest"));
}

std::string ModeHelp(ModeUse use) {
  std::vector<std::string> modes;
  for (const ModeInfo& mode : kTable) {
    if (!mode.Has(use)) continue;
    const std::vector<ModeParameter> parameters = ParametersOf(mode, use);
    const auto format = [](std::string* out, const ModeParameter& parameter) {
      absl::StrAppend(out, parameter.key, "=",
                      parameter.choices.empty()
                          ? parameter.default_value
                          : absl::StrJoin(parameter.choices, "/"));
    };
    modes.push_back(absl::StrCat(mode.name, parameters.empty() ? "" : ":",
                                 absl::StrJoin(parameters, ",", format)));
    if (mode.name == kOuroboros) {
      // Without parameters the draft worker chooses all of them.
      modes.back() = absl::StrCat(mode.name, "[",
                                  absl::StripPrefix(modes.back(), mode.name),
                                  ",preset=", PresetNames(), "]");
    }
  }
  return absl::StrJoin(modes, " | ");
}

Mode::Mode() : info_(&kTable[0]), spec_(*ModeSpec::Parse("off")) {}

absl::StatusOr<Mode> Mode::Parse(absl::string_view text, ModeUse use) {
  FORETOKEN_ASSIGN_OR_RETURN(ModeSpec spec, ModeSpec::Parse(text));
  return Create(std::move(spec), use);
}

absl::StatusOr<Mode> Mode::Create(ModeSpec spec, ModeUse use) {
  // A preset becomes plain parameters before the table is searched: the
  // options, the spec that is sent on and the log all show the values.
  if (spec.name() == kOuroboros) {
    FORETOKEN_ASSIGN_OR_RETURN(spec, ExpandOuroborosPreset(std::move(spec)));
  }
  for (const ModeInfo& info : kTable) {
    if (info.name != spec.name() || !info.Has(use)) continue;
    ModeReader read(spec);
    Mode mode;
    mode.info_ = &info;
    mode.options_ = info.read(read, use);
    FORETOKEN_RETURN_IF_ERROR(read.Finish());
    // Last, as it needs the reader's list of questions.
    FORETOKEN_ASSIGN_OR_RETURN(mode.spec_, WithoutAuto(read));
    return mode;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown mode '", spec.name(), "', want one of ", Names(use)));
}

absl::Status Mode::CheckFits(const TreeLimits& limits) const {
  return Annotate(std::visit(Fits{limits}, options_),
                  absl::StrCat("mode '", name(), "'"));
}

}  // namespace foretoken
