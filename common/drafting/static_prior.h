// Static prior: a compact n-gram model of a corpus, in memory and shared by
// all sessions. It predicts what follows a few tokens of ordinary text where
// the request's own context has no evidence.
//
// Model: interpolated absolute discounting. A context h of 1..order-1 tokens
// lists continuations w with a discounted probability q(w | h), and has a
// backoff mass b(h) for the tokens that it does not list:
//   P(w | h) = q(w | h) + b(h) P(w | h without its first token),
// down to the unigrams, q(w) = P(w).
//
// File (little-endian; prior_format.h), one entry per n-gram, level by level:
//   header | codes u8 | tokens u16 or u32 | blocks | samples u32 | backoffs u8
//   | SHA-256 of all before
// Entry w of level 1 is token w itself. Entries with continuations (contexts)
// are numbered in order, and their lists are stored in the same order, so the
// list of context i begins at the i-th marked entry, found from one sample per
// 16 contexts. Probabilities take one byte, 16 steps per octave. About 4 bytes
// per n-gram for a vocabulary of up to 65,536.
//
// A list of at most kHead continuations is sorted by descending probability. In
// a longer list the kHead most probable ones come first, in that order; the
// rest is sorted by token.
//
// Thread-safe: immutable after Open.
#ifndef FORETOKEN_COMMON_DRAFTING_STATIC_PRIOR_H_
#define FORETOKEN_COMMON_DRAFTING_STATIC_PRIOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/base/mapped_file.h"
#include "common/base/types.h"

namespace foretoken {

struct PriorBlock;

class StaticPrior {
 public:
  static constexpr int kMaxOrder = 6;
  static constexpr uint32_t kHead = 32;

  // Reads and validates the whole file (lengths, checksum, order and every
  // index), so that reads stay inside it. `tokenizer` is the fingerprint of the
  // tokenizer in use. NotFound; InvalidArgument, naming path, field and value;
  // FailedPrecondition for a prior built for another tokenizer.
  static absl::StatusOr<std::shared_ptr<const StaticPrior>> Open(
      const std::string& path, const Sha256Digest& tokenizer);

  // As Open, for bytes in memory, which are copied; `name` is used in messages.
  static absl::StatusOr<std::shared_ptr<const StaticPrior>> FromBytes(
      absl::Span<const uint8_t> bytes, const std::string& name,
      const Sha256Digest& tokenizer);

  // The continuations of one context: entries [first, first + size).
  struct List {
    uint32_t first = 0;
    uint32_t size = 0;     // 0: the prior has no continuations of this context
    float backoff = 1.0f;  // b(h)
    uint8_t backoff_code = 0;
  };

  // The list after `token` alone; empty for ids outside the vocabulary.
  List AfterToken(TokenId token) const {
    return static_cast<uint32_t>(token) < vocab_size_
               ? AfterEntry(static_cast<uint32_t>(token))
               : List{};
  }
  // The list after the n-gram of an entry: the context of its own list plus its
  // token.
  List AfterEntry(uint32_t entry) const;
  // Returns the entry of `token` in a list, or -1.
  int64_t Find(const List& list, TokenId token) const;

  TokenId TokenOf(uint32_t entry) const {
    return wide_ ? static_cast<TokenId>(wide_tokens_[entry - vocab_size_])
                 : narrow_tokens_[entry - vocab_size_];
  }
  float ProbabilityOf(uint32_t entry) const { return kDecode[codes_[entry]]; }
  // P(token) without context; 0 outside the vocabulary.
  float Unigram(TokenId token) const {
    return static_cast<uint32_t>(token) < vocab_size_ ? kDecode[codes_[token]]
                                                      : 0.0f;
  }

  int order() const { return order_; }
  int32_t vocab_size() const { return static_cast<int32_t>(vocab_size_); }
  uint64_t entries() const { return entry_count_; }
  uint64_t contexts() const { return context_count_; }
  size_t bytes() const { return data_.size(); }

  // Encodes a probability in 0..1 as one byte (nearest step), and back.
  static uint8_t Encode(double probability);
  static float Decode(uint8_t code) { return kDecode[code]; }

 private:
  static const std::array<float, 256> kDecode;

  static absl::StatusOr<std::shared_ptr<const StaticPrior>> Finish(
      std::shared_ptr<StaticPrior> prior, const std::string& name,
      const Sha256Digest& tokenizer);
  absl::Status Bind(const std::string& name, const Sha256Digest& tokenizer);
  absl::Status CheckIndices(const std::string& name) const;
  List ListOf(uint32_t context) const;

  MappedFile file_;
  std::vector<uint64_t> owned_;  // FromBytes; words keep the alignment
  absl::Span<const uint8_t> data_;

  int order_ = 0;
  bool wide_ = false;
  uint32_t vocab_size_ = 0;
  uint32_t entry_count_ = 0;
  uint32_t block_count_ = 0;
  uint32_t context_count_ = 0;
  std::array<uint32_t, kMaxOrder + 1> level_ends_{};
  const uint8_t* codes_ = nullptr;
  const uint16_t* narrow_tokens_ = nullptr;
  const uint32_t* wide_tokens_ = nullptr;
  const PriorBlock* blocks_ = nullptr;
  const uint32_t* samples_ = nullptr;
  const uint8_t* backoffs_ = nullptr;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_STATIC_PRIOR_H_
