// Modes: the table of drafting modes, and Mode, one mode with checked options.
//
// The table defines each mode completely: its name, its drafter, the service it
// needs, its options with their ranges and defaults. Help texts, the list of
// served modes and the conversion of messages derive from it, and a test
// compares it with token_tree.proto field by field.
//
// A new mode over an existing drafter needs a row of the table in modes.cc and
// a message in token_tree.proto; options of its own also need their struct here
// and the drafter made of them in common/drafting/drafter_factory.cc.
//
// Thread-compatible.
#ifndef FORETOKEN_COMMON_SPECULATION_MODES_H_
#define FORETOKEN_COMMON_SPECULATION_MODES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/speculation/drafter_id.h"
#include "common/speculation/mode_spec.h"
#include "common/speculation/token_tree.h"

namespace foretoken {

// Upper limit of every option that counts draft nodes.
inline constexpr int kMaxDraftNodes = 256;

// Maximum rows of a lookahead window of `columns` columns and n-gram size
// `ngram`, while filling or full, without the last committed token.
int32_t LookaheadRows(int columns, int ngram);

// --- Options -----------------------------------------------------------------
// A member without a key in modes.cc is not a parameter of the mode; it is set
// by the code that makes the drafter.

// `off`: plain decoding.
struct OffOptions {};

// `draft_model`: a chain from the draft model (Leviathan 2023), or without
// gamma a tree that grows while it pays.
struct DraftModelOptions {
  std::optional<int> gamma;  // tokens of the chain, 1..kMaxDraftNodes
};

// `lookahead`: n-grams from the target's own Jacobi window (Fu 2024).
struct LookaheadOptions {
  static constexpr int kMaxWindow = 256;
  static constexpr int kMaxNgram = 16;
  static constexpr int kMaxPool = 64;

  int window = 15;  // W, 1..kMaxWindow
  int ngram = 5;    // N, 2..kMaxNgram
  int pool = 15;    // G, n-grams per first token, 1..kMaxPool

  // Probe rows of the largest window.
  int WindowRows() const { return LookaheadRows(window, ngram); }
};

struct PhrasePoolOptions {
  static constexpr int kMaxWidth = 256;
  static constexpr int kMaxPhraseTokens = 64;

  int width = 20;                          // W, 1..kMaxWidth
  int phrase_tokens = 8;                   // beta, 2..kMaxPhraseTokens
  int64_t max_phrases = int64_t{1} << 17;  // over all keys, at least 1
};

// `ouroboros`: phrase-level drafting (arXiv 2402.13720, Algorithm 1). The
// defaults are the paper's. A request that gives no parameter at all has
// ByPrice() instead.
struct OuroborosOptions {
  int gamma = 12;
  int window = 20;   // W: phrases checked in a pass, columns of the lookahead
  int beta = 8;      // tokens of a phrase, its key included
  int suffixes = 3;  // K
  bool inspiration = true;
  bool refinement = true;
  bool warm_start = true;
  // Extensions beyond the paper:
  int passes = 0;      // maximum per draft, however short; 0: no limit
  int lookahead = -1;  // columns of the lookahead, 0: none; -1: W as published
  bool context = false;  // phrases of the request's own text join the pool
  // A draft has the passes, and a pass the phrases, that are expected to pay
  // for their time: gamma and window are upper limits.
  bool by_price = false;

  // Options that the draft worker adapts to the prices of passes and rows.
  static OuroborosOptions ByPrice();

  int LookaheadColumns() const { return lookahead < 0 ? window : lookahead; }
  // Rows of the draft model's widest pass below the last committed token: the
  // chain, the pool's phrases and the lookahead window.
  int32_t MaxRows() const;
};

// `ngram_trie`: a subtree of the count trie over the request's own text.
struct NgramTrieOptions {
  static constexpr int kMaxN = 32;
  static constexpr int kMaxDraft = 1024;

  int n = 13;                             // longest n-gram counted, 2..kMaxN
  int longest_match = 3;                  // L_p, 1..n-1
  int num_draft = 32;                     // nodes in a draft, 1..kMaxDraft
  bool learn = false;                     // insert committed tokens too
  int64_t max_tokens = int64_t{1} << 17;  // window of the trie
};

// `crest`: stored token trees of the commonest n-grams (arXiv 2408.04678).
struct CrestModeOptions {
  std::string datastore;  // a name; empty: the server's configured one
};

// `prompt_lookup`: a copy of what followed an earlier occurrence of the last
// tokens (Saxena 2023).
struct PromptLookupOptions {
  static constexpr int kMaxN = 16;
  static constexpr int kMaxTokens = 256;
  enum class Match { kFirst, kLatest };

  int max_n = 3;    // longest n-gram, 1..kMaxN
  int tokens = 10;  // longest draft, 1..kMaxTokens
  Match match = Match::kFirst;
  // Tokens of a context beyond this are not indexed, so that memory is bounded
  // (at most 4 + 12 * max_n bytes per token).
  int max_context = 1 << 20;
};

// `phrase_pool`: Ouroboros' pool without a draft model.
struct PhrasePoolDrafterOptions {
  static constexpr int kMaxSuffixes = 64;

  PhrasePoolOptions pool;
  int suffixes = 3;  // K, 1..kMaxSuffixes
  // Phrases of earlier requests stay in the pool. Otherwise every request
  // starts with the phrases from AddHistory only.
  bool keep = false;
};

// `auto`: all available drafters, fused. Requests take no parameters; replay
// uses them to switch off parts of the model-free core.
struct AutoOptions {
  bool request = true;  // draft from the request's own text
  bool history = true;  // and from earlier outputs
  double price = 0.0;   // path probability that a node must have, 0..1
};

using ModeOptions =
    std::variant<OffOptions, DraftModelOptions, LookaheadOptions,
                 OuroborosOptions, NgramTrieOptions, CrestModeOptions,
                 PromptLookupOptions, PhrasePoolDrafterOptions, AutoOptions>;

// --- The table ---------------------------------------------------------------

// Where a mode is used: in requests to the orchestrator (and its services), in
// `foretoken replay`, or both. Each use has its own keys.
enum class ModeUse { kRequest, kReplay };

struct ModeInfo {
  absl::string_view name;
  DrafterId drafter;  // kTarget if it has none
  // The service that drafts this mode if the orchestrator has it; empty: none.
  absl::string_view service;
  bool needs_service;  // the orchestrator cannot draft it itself
  bool in_auto;  // `auto` uses its drafts, too, if its service is available
  bool in_requests;
  bool in_replay;
  ModeOptions (*read)(ModeReader& read, ModeUse use);

  bool Has(ModeUse use) const {
    return use == ModeUse::kRequest ? in_requests : in_replay;
  }
};

class Mode;

// In the order in which modes are listed.
absl::Span<const ModeInfo> ModeTable();

// The names of all drafting services, each once.
std::vector<std::string> DraftingServices();

// The parameters of `mode` with their defaults.
std::vector<ModeParameter> ParametersOf(const ModeInfo& mode, ModeUse use);

// For one process that has the draft model or the datastore or not:
// InvalidArgument names the flag that gives it what `mode` drafts from.
absl::Status CheckModeHasSource(const Mode& mode, bool has_draft_model,
                                bool has_datastore);

// For help texts: every mode with its parameters and their defaults, as
// `off | draft_model:gamma=5 | ...`.
std::string ModeHelp(ModeUse use);

// A mode of the table with its options in their ranges.
class Mode {
 public:
  Mode();  // off

  // Parses `prompt_lookup:max_n=3,match=latest`. InvalidArgument names a mode
  // that `use` does not have, a parameter that the mode does not have, or a
  // value out of its range.
  static absl::StatusOr<Mode> Parse(absl::string_view text,
                                    ModeUse use = ModeUse::kRequest);
  static absl::StatusOr<Mode> Create(ModeSpec spec,
                                     ModeUse use = ModeUse::kRequest);

  const ModeInfo& info() const { return *info_; }
  const std::string& name() const { return spec_.name(); }
  const ModeOptions& options() const { return options_; }
  // The options if they are of this type, else null.
  template <typename Options>
  const Options* As() const {
    return std::get_if<Options>(&options_);
  }
  // The parameters that were given; the others have their defaults.
  const ModeSpec& spec() const { return spec_; }
  std::string ToString() const { return spec_.ToString(); }

  // InvalidArgument names the parameter if a round needs more draft nodes or
  // rows than `limits` allows.
  absl::Status CheckFits(const TreeLimits& limits) const;

 private:
  const ModeInfo* info_;
  ModeSpec spec_;
  ModeOptions options_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_MODES_H_
