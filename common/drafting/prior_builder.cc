#include "common/drafting/prior_builder.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/drafting/ngram_counts.h"
#include "common/drafting/prior_estimate.h"
#include "common/drafting/prior_format.h"
#include "common/drafting/static_prior.h"

namespace foretoken {
namespace {

// Confidence in a context's own continuations over those of the base: T / (T +
// K d) for T occurrences of d distinct ones (Witten-Bell with a factor K).
constexpr double kOwnDoubt = 3.0;

constexpr uint32_t kNone = ~uint32_t{0};

// The corpus, and the prior that it is laid over, if any.
struct Sources {
  const NgramCounts& counts;
  const std::vector<NgramEstimates>& estimates;
  const StaticPrior* base;  // null: none

  int order() const {
    return base == nullptr ? counts.order()
                           : std::max(counts.order(), base->order());
  }
};

// Which n-grams of the corpus the base lists, [n - 1][index in level n], and
// for which of them it has continuations.
struct Overlap {
  explicit Overlap(const Sources& sources);

  std::vector<std::vector<bool>> listed;
  std::vector<std::vector<bool>> continued;
};

Overlap::Overlap(const Sources& sources) {
  const StaticPrior* const base = sources.base;
  std::vector<StaticPrior::List> above;  // the base's, by n-gram of one level
  for (int n = 1; n <= sources.counts.order(); ++n) {
    const NgramLevel& level = sources.counts.level(n);
    std::vector<StaticPrior::List> lists(level.size());
    std::vector<bool>& in_base = listed.emplace_back(level.size(), false);
    std::vector<bool>& goes_on = continued.emplace_back(level.size(), false);
    for (size_t i = 0; base != nullptr && i < level.size(); ++i) {
      if (n == 1) {
        lists[i] = base->AfterToken(level.tokens[i]);
      } else if (above[level.parents[i]].size != 0) {
        const int64_t entry =
            base->Find(above[level.parents[i]], level.tokens[i]);
        if (entry < 0) continue;
        lists[i] = base->AfterEntry(static_cast<uint32_t>(entry));
      } else {
        continue;
      }
      in_base[i] = true;
      goes_on[i] = lists[i].size != 0;
    }
    above = std::move(lists);
  }
}

// A context of the file: an n-gram of the corpus, of the base, or of both.
struct Context {
  uint32_t entry;          // of the file
  uint32_t own;            // index in its level; kNone: not in the corpus
  StaticPrior::List base;  // the base's continuations
};

struct Continuation {
  TokenId token;
  float share;
  uint32_t own;     // as in Context
  int64_t in_base;  // entry of the base; -1: not listed there
};

// Selects the n-grams to keep: unigrams, those of the base, and those of the
// corpus worth at least a threshold.
class Selection {
 public:
  explicit Selection(const Sources& sources)
      : sources_(sources), overlap_(sources) {}

  // Finds the lowest threshold, within one part in 2^30, whose file has at most
  // max_bytes; returns false if what is always kept is larger.
  bool Fit(uint64_t max_bytes);
  // Size of a file of what is always kept.
  uint64_t LeastBytes() const { return FileBytesAt(kInfinity); }

  // Kept continuations of a context of n - 1 tokens, in file order.
  std::vector<Continuation> Continuations(int n, const Context& context) const;

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  uint64_t FileBytesAt(float threshold) const;
  // Share of the corpus, against the base, in the continuations of a context
  // of n - 1 tokens.
  double OwnShare(int n, const Context& context) const;

  const Sources& sources_;
  const Overlap overlap_;
  float threshold_ = 0;
};

uint64_t Selection::FileBytesAt(float threshold) const {
  const NgramCounts& counts = sources_.counts;
  const StaticPrior* const base = sources_.base;
  const uint64_t vocab = static_cast<uint64_t>(counts.vocab_size());
  uint64_t entries = base == nullptr ? vocab : base->entries();
  uint64_t contexts = base == nullptr ? 0 : base->contexts();
  for (int n = 2; n <= counts.order(); ++n) {
    const NgramLevel& level = counts.level(n);
    const std::vector<float>& worth = sources_.estimates[n - 1].worth;
    uint32_t last = kNone;
    for (size_t i = 0; i < level.size(); ++i) {
      if (worth[i] < threshold || overlap_.listed[n - 1][i]) continue;
      ++entries;
      // N-grams of one context are contiguous.
      const uint32_t parent = level.parents[i];
      contexts += parent != last && !overlap_.continued[n - 2][parent];
      last = parent;
    }
  }
  return PriorLayout::Of(vocab, entries, contexts).end;
}

bool Selection::Fit(uint64_t max_bytes) {
  if (LeastBytes() > max_bytes) return false;
  // Find an upper bound, then bisect: the file shrinks as the threshold grows.
  // The kept set is prefix-closed, because worth never increases from an n-gram
  // to those that it begins.
  double low = 0;
  double high = 1e-6;
  while (FileBytesAt(static_cast<float>(high)) > max_bytes) {
    low = high;
    high *= 4;
  }
  for (int step = 0; step < 30; ++step) {
    const double middle = (low + high) / 2;
    const bool fits = FileBytesAt(static_cast<float>(middle)) <= max_bytes;
    (fits ? high : low) = middle;
  }
  threshold_ = static_cast<float>(high);
  return true;
}

double Selection::OwnShare(int n, const Context& context) const {
  if (context.base.size == 0) return 1.0;
  if (context.own == kNone || n > sources_.counts.order()) return 0.0;
  const NgramLevel& above = sources_.counts.level(n - 1);
  const uint32_t first = above.children[context.own];
  const uint32_t end = above.children[context.own + 1];
  double total = 0;
  for (uint32_t i = first; i < end; ++i) {
    total += sources_.counts.level(n).counts[i];
  }
  return end == first ? 0.0 : total / (total + kOwnDoubt * (end - first));
}

std::vector<Continuation> Selection::Continuations(
    int n, const Context& context) const {
  std::vector<Continuation> kept;
  const double own_share = OwnShare(n, context);
  for (uint32_t i = 0; i < context.base.size; ++i) {
    const uint32_t entry = context.base.first + i;
    kept.push_back({sources_.base->TokenOf(entry),
                    static_cast<float>((1.0 - own_share) *
                                       sources_.base->ProbabilityOf(entry)),
                    kNone, entry});
  }
  if (context.own != kNone && n <= sources_.counts.order()) {
    const NgramLevel& above = sources_.counts.level(n - 1);
    const NgramLevel& level = sources_.counts.level(n);
    const NgramEstimates& of = sources_.estimates[n - 1];
    for (uint32_t i = above.children[context.own];
         i < above.children[context.own + 1]; ++i) {
      const float share = static_cast<float>(own_share * of.share[i]);
      if (overlap_.listed[n - 1][i]) {
        Continuation& both =
            kept[sources_.base->Find(context.base, level.tokens[i]) -
                 context.base.first];
        both.share += share;
        both.own = i;
      } else if (of.worth[i] >= threshold_) {
        kept.push_back({level.tokens[i], share, i, -1});
      }
    }
  }
  // File order of a list: see static_prior.h. Equal shares keep a fixed order.
  const auto head =
      kept.begin() + std::min<ptrdiff_t>(kept.size(), StaticPrior::kHead);
  std::partial_sort(kept.begin(), head, kept.end(),
                    [](const Continuation& a, const Continuation& b) {
                      return a.share != b.share ? a.share > b.share
                                                : a.token < b.token;
                    });
  std::sort(head, kept.end(), [](const Continuation& a, const Continuation& b) {
    return a.token < b.token;
  });
  return kept;
}

// Contents of the file's sections while it is built.
struct Sections {
  PriorHeader header{};
  std::vector<uint8_t> codes;     // by entry
  std::vector<bool> has;          // by entry: whether it has continuations
  std::vector<uint32_t> tokens;   // by entry, without unigrams
  std::vector<uint32_t> firsts;   // by context: its first continuation
  std::vector<uint8_t> backoffs;  // by context
};

// Fills in the unigrams; returns them as contexts.
std::vector<Context> CollectUnigrams(const Sources& sources, Sections& out) {
  const NgramLevel& level = sources.counts.level(1);
  const std::vector<float>& own = sources.estimates[0].probability;
  const StaticPrior* const base = sources.base;
  const uint32_t vocab = static_cast<uint32_t>(sources.counts.vocab_size());
  const double total = static_cast<double>(sources.counts.corpus_tokens());
  const double own_share =
      base == nullptr ? 1.0 : total / (total + kOwnDoubt * level.size());
  out.codes.assign(vocab, StaticPrior::Encode(0.0));
  out.has.assign(vocab, false);
  std::vector<Context> contexts;
  // The corpus lists its tokens in ascending order.
  uint32_t i = 0;
  for (uint32_t token = 0; token < vocab; ++token) {
    const TokenId id = static_cast<TokenId>(token);
    Context context{token, kNone, {}};
    double probability = 0;
    if (i < level.size() && level.tokens[i] == id) {
      probability = own_share * own[i];
      context.own = i++;
    }
    if (base != nullptr) {
      probability += (1.0 - own_share) * base->Unigram(id);
      context.base = base->AfterToken(id);
    }
    out.codes[token] = StaticPrior::Encode(probability);
    if (context.own != kNone || context.base.size != 0) {
      contexts.push_back(context);
    }
  }
  return contexts;
}

Sections Collect(const Sources& sources, const Selection& selection) {
  Sections out;
  std::vector<Context> contexts = CollectUnigrams(sources, out);
  std::fill(std::begin(out.header.level_ends), std::end(out.header.level_ends),
            static_cast<uint32_t>(out.codes.size()));
  for (int n = 2; n <= sources.order(); ++n) {
    std::vector<Context> next;
    for (const Context& context : contexts) {
      const std::vector<Continuation> kept =
          selection.Continuations(n, context);
      if (kept.empty()) continue;
      out.has[context.entry] = true;
      out.firsts.push_back(static_cast<uint32_t>(out.codes.size()));
      double listed = 0;
      for (const Continuation& one : kept) {
        listed += one.share;
        next.push_back({static_cast<uint32_t>(out.codes.size()), one.own,
                        one.in_base < 0
                            ? StaticPrior::List{}
                            : sources.base->AfterEntry(
                                  static_cast<uint32_t>(one.in_base))});
        out.codes.push_back(StaticPrior::Encode(one.share));
        out.tokens.push_back(static_cast<uint32_t>(one.token));
        out.has.push_back(false);
      }
      // Pruned continuations add their mass to the backoff.
      out.backoffs.push_back(StaticPrior::Encode(std::max(0.0, 1.0 - listed)));
    }
    contexts = std::move(next);
    // Levels that do not exist end where the last one does.
    for (int m = n; m <= StaticPrior::kMaxOrder; ++m) {
      out.header.level_ends[m - 1] = static_cast<uint32_t>(out.codes.size());
    }
  }
  return out;
}

std::vector<PriorBlock> MakeBlocks(const Sections& sections) {
  std::vector<PriorBlock> blocks((sections.codes.size() + 63) / 64);
  for (size_t i = 0; i < sections.has.size(); ++i) {
    if (sections.has[i]) blocks[i / 64].has |= uint64_t{1} << (i % 64);
  }
  for (uint32_t first : sections.firsts) {
    blocks[first / 64].begins |= uint64_t{1} << (first % 64);
  }
  for (size_t i = 1; i < blocks.size(); ++i) {
    const PriorBlock& before = blocks[i - 1];
    blocks[i].contexts =
        before.contexts + static_cast<uint32_t>(std::popcount(before.has));
    blocks[i].lists =
        before.lists + static_cast<uint32_t>(std::popcount(before.begins));
  }
  return blocks;
}

template <typename T>
void Put(std::string& bytes, uint64_t offset, const std::vector<T>& values) {
  if (values.empty()) return;
  std::memcpy(bytes.data() + offset, values.data(), values.size() * sizeof(T));
}

std::string Serialize(Sections sections, const Sources& sources,
                      const Sha256Digest& tokenizer) {
  const NgramCounts& counts = sources.counts;
  PriorHeader& header = sections.header;
  std::memcpy(header.magic, kPriorMagic, sizeof(kPriorMagic));
  header.version = kPriorVersion;
  header.order = static_cast<uint32_t>(sources.order());
  header.vocab_size = static_cast<uint32_t>(counts.vocab_size());
  header.entries = static_cast<uint32_t>(sections.codes.size());
  header.contexts = static_cast<uint32_t>(sections.backoffs.size());
  header.corpus_tokens = counts.corpus_tokens();
  header.tokenizer = tokenizer;
  const PriorLayout at =
      PriorLayout::Of(header.vocab_size, header.entries, header.contexts);
  std::string bytes(at.end, '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  Put(bytes, at.codes, sections.codes);
  if (header.vocab_size > kPriorMaxNarrowVocab) {
    Put(bytes, at.tokens, sections.tokens);
  } else {
    Put(bytes, at.tokens,
        std::vector<uint16_t>(sections.tokens.begin(), sections.tokens.end()));
  }
  Put(bytes, at.blocks, MakeBlocks(sections));
  std::vector<uint32_t> samples;
  for (size_t i = 0; i < sections.firsts.size(); i += kPriorSampleStep) {
    samples.push_back(sections.firsts[i]);
  }
  Put(bytes, at.samples, samples);
  Put(bytes, at.backoffs, sections.backoffs);
  const Sha256Digest digest =
      Sha256().Update(absl::string_view(bytes.data(), at.digest)).Finish();
  std::memcpy(bytes.data() + at.digest, digest.data(), digest.size());
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> BuildPrior(absl::Span<const TokenId> corpus,
                                       const PriorBuildOptions& options) {
  if (options.vocab_size < 1 ||
      static_cast<uint32_t>(options.vocab_size) > kPriorMaxVocab) {
    return absl::InvalidArgumentError(
        absl::StrFormat("prior: vocabulary of %d, want 1..%d",
                        options.vocab_size, kPriorMaxVocab));
  }
  const StaticPrior* const base = options.base.get();
  if (base != nullptr && base->vocab_size() != options.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("prior: a base of a vocabulary of %d, want %d",
                        base->vocab_size(), options.vocab_size));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const NgramCounts counts,
      NgramCounts::Create(corpus, options.order, options.vocab_size));
  if (counts.corpus_tokens() == 0) {
    return absl::InvalidArgumentError("prior: the corpus has no tokens");
  }
  const std::vector<NgramEstimates> estimates = EstimateNgrams(counts);
  const Sources sources{counts, estimates, base};
  Selection selection(sources);
  if (!selection.Fit(options.max_bytes)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "prior: max_bytes %d is too small, %s of a vocabulary of %d take %d",
        options.max_bytes,
        base == nullptr ? "the single tokens" : "the n-grams of the base",
        options.vocab_size, selection.LeastBytes()));
  }
  return Serialize(Collect(sources, selection), sources, options.tokenizer);
}

}  // namespace foretoken
