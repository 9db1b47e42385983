#include "common/drafting/prior_builder.h"

#include <algorithm>
#include <bit>
#include <cstring>
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

// Selects the n-grams to keep: unigrams, and those worth at least a threshold.
class Selection {
 public:
  Selection(const NgramCounts& counts,
            const std::vector<NgramEstimates>& estimates)
      : counts_(counts), estimates_(estimates) {}

  // Finds the lowest threshold, within one part in 2^30, whose file has at most
  // max_bytes; returns false if the unigrams alone are larger.
  bool Fit(uint64_t max_bytes);

  // Kept continuations of a context of n - 1 tokens, as indices of level n, in
  // file order.
  std::vector<uint32_t> Continuations(int n, size_t context) const;

 private:
  uint64_t FileBytesAt(float threshold) const;

  const NgramCounts& counts_;
  const std::vector<NgramEstimates>& estimates_;
  float threshold_ = 0;
};

uint64_t Selection::FileBytesAt(float threshold) const {
  const uint64_t vocab = static_cast<uint64_t>(counts_.vocab_size());
  uint64_t entries = vocab;
  uint64_t contexts = 0;
  for (int n = 2; n <= counts_.order(); ++n) {
    const NgramLevel& level = counts_.level(n);
    const std::vector<float>& worth = estimates_[n - 1].worth;
    uint32_t last = ~uint32_t{0};
    for (size_t i = 0; i < level.size(); ++i) {
      if (worth[i] < threshold) continue;
      ++entries;
      // N-grams of one context are contiguous.
      contexts += level.parents[i] != last;
      last = level.parents[i];
    }
  }
  return PriorLayout::Of(vocab, entries, contexts).end;
}

bool Selection::Fit(uint64_t max_bytes) {
  // Find an upper bound, then bisect: the file shrinks as the threshold grows.
  // What is kept is prefix-closed, because worth never increases from an n-gram
  // to those that it begins.
  double low = 0;
  double high = 1e-6;
  while (FileBytesAt(static_cast<float>(high)) > max_bytes) {
    if (high > 1e30) return false;
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

std::vector<uint32_t> Selection::Continuations(int n, size_t context) const {
  const NgramLevel& above = counts_.level(n - 1);
  const NgramEstimates& of = estimates_[n - 1];
  std::vector<uint32_t> kept;
  for (uint32_t i = above.children[context]; i < above.children[context + 1];
       ++i) {
    if (of.worth[i] >= threshold_) kept.push_back(i);
  }
  // File order of a list: see static_prior.h. Equal shares keep a fixed order.
  const auto head =
      kept.begin() + std::min<ptrdiff_t>(kept.size(), StaticPrior::kHead);
  std::partial_sort(
      kept.begin(), head, kept.end(), [&of](uint32_t a, uint32_t b) {
        return of.share[a] != of.share[b] ? of.share[a] > of.share[b] : a < b;
      });
  std::sort(head, kept.end());
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

Sections Collect(const NgramCounts& counts,
                 const std::vector<NgramEstimates>& estimates,
                 const Selection& selection) {
  const uint32_t vocab = static_cast<uint32_t>(counts.vocab_size());
  Sections out;
  out.codes.assign(vocab, StaticPrior::Encode(0.0));
  out.has.assign(vocab, false);
  // (entry, index in its level) of every kept n-gram of the previous level.
  std::vector<std::pair<uint32_t, uint32_t>> contexts;
  for (uint32_t i = 0; i < counts.level(1).size(); ++i) {
    const uint32_t token = static_cast<uint32_t>(counts.level(1).tokens[i]);
    out.codes[token] = StaticPrior::Encode(estimates[0].probability[i]);
    contexts.emplace_back(token, i);
  }
  std::fill(std::begin(out.header.level_ends), std::end(out.header.level_ends),
            vocab);
  for (int n = 2; n <= counts.order(); ++n) {
    const NgramEstimates& of = estimates[n - 1];
    std::vector<std::pair<uint32_t, uint32_t>> next;
    for (const auto& [entry, index] : contexts) {
      const std::vector<uint32_t> kept = selection.Continuations(n, index);
      if (kept.empty()) continue;
      out.has[entry] = true;
      out.firsts.push_back(static_cast<uint32_t>(out.codes.size()));
      double listed = 0;
      for (uint32_t i : kept) {
        listed += of.share[i];
        next.emplace_back(static_cast<uint32_t>(out.codes.size()), i);
        out.codes.push_back(StaticPrior::Encode(of.share[i]));
        out.tokens.push_back(static_cast<uint32_t>(counts.level(n).tokens[i]));
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

std::string Serialize(Sections sections, const NgramCounts& counts,
                      const Sha256Digest& tokenizer) {
  PriorHeader& header = sections.header;
  std::memcpy(header.magic, kPriorMagic, sizeof(kPriorMagic));
  header.version = kPriorVersion;
  header.order = static_cast<uint32_t>(counts.order());
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
  FORETOKEN_ASSIGN_OR_RETURN(
      const NgramCounts counts,
      NgramCounts::Create(corpus, options.order, options.vocab_size));
  if (counts.corpus_tokens() == 0) {
    return absl::InvalidArgumentError("prior: the corpus has no tokens");
  }
  const std::vector<NgramEstimates> estimates = EstimateNgrams(counts);
  Selection selection(counts, estimates);
  if (!selection.Fit(options.max_bytes)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "prior: max_bytes %d is too small, the single tokens of a vocabulary "
        "of %d take %d",
        options.max_bytes, options.vocab_size,
        PriorLayout::Of(options.vocab_size, options.vocab_size, 0).end));
  }
  return Serialize(Collect(counts, estimates, selection), counts,
                   options.tokenizer);
}

}  // namespace foretoken
