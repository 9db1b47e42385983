// File format of a static prior: header and section offsets, shared by reader
// and builder. static_prior.h describes the sections.
#ifndef FORETOKEN_COMMON_DRAFTING_PRIOR_FORMAT_H_
#define FORETOKEN_COMMON_DRAFTING_PRIOR_FORMAT_H_

#include <cstddef>
#include <cstdint>

#include "common/base/digest.h"

namespace foretoken {

inline constexpr char kPriorMagic[8] = {'F', 'T', 'P', 'R', 'I', 'O', 'R', 0};
inline constexpr uint32_t kPriorVersion = 1;
inline constexpr uint32_t kPriorMaxVocab = 1u << 24;
// Up to this size a token takes two bytes in the file, above it four.
inline constexpr uint32_t kPriorMaxNarrowVocab = 65536;

struct PriorHeader {
  char magic[8];
  uint32_t version;
  uint32_t order;
  uint32_t vocab_size;
  uint32_t entries;        // all levels, unigrams included
  uint32_t contexts;       // entries with continuations
  uint32_t level_ends[6];  // entries of levels 1..n; unused levels as the last
  uint32_t reserved;       // 0
  uint64_t corpus_tokens;
  Sha256Digest tokenizer;
};
static_assert(sizeof(PriorHeader) == 8 + 12 * 4 + 8 + 32);

// For 64 entries: which of them have continuations, and where lists begin.
struct PriorBlock {
  uint64_t has;       // bit i: entry i of the block has continuations
  uint64_t begins;    // bit i: a list begins at entry i of the block
  uint32_t contexts;  // entries with continuations before the block
  uint32_t lists;     // lists that begin before the block
};
static_assert(sizeof(PriorBlock) == 24);

// The entry at which a context's list begins is stored for every 16th context.
inline constexpr uint32_t kPriorSampleStep = 16;

// Byte offsets of the sections; each begins at a multiple of 8.
struct PriorLayout {
  uint64_t codes, tokens, blocks, samples, backoffs, digest, end;

  static uint64_t SampleCount(uint64_t contexts) {
    return (contexts + kPriorSampleStep - 1) / kPriorSampleStep;
  }
  static PriorLayout Of(uint64_t vocab_size, uint64_t entries,
                        uint64_t contexts) {
    const auto align = [](uint64_t n) { return (n + 7) / 8 * 8; };
    const uint64_t token_bytes = vocab_size > kPriorMaxNarrowVocab ? 4 : 2;
    const uint64_t blocks = (entries + 63) / 64;
    PriorLayout at{};
    at.codes = sizeof(PriorHeader);
    at.tokens = align(at.codes + entries);
    at.blocks = align(at.tokens + (entries - vocab_size) * token_bytes);
    at.samples = at.blocks + blocks * sizeof(PriorBlock);
    at.backoffs = align(at.samples + SampleCount(contexts) * 4);
    at.digest = align(at.backoffs + contexts);
    at.end = at.digest + sizeof(Sha256Digest);
    return at;
  }
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_PRIOR_FORMAT_H_
