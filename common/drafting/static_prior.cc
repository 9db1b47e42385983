#include "common/drafting/static_prior.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/drafting/prior_format.h"

namespace foretoken {
namespace {

constexpr double kStepsPerOctave = 16.0;

// std::popcount calls a library function in builds without POPCNT.
uint32_t CountBits(uint64_t word) {
  word -= (word >> 1) & 0x5555555555555555u;
  word = (word & 0x3333333333333333u) + ((word >> 2) & 0x3333333333333333u);
  word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return static_cast<uint32_t>((word * 0x0101010101010101u) >> 56);
}

template <typename Token>
int64_t FindIn(const Token* tokens, uint32_t size, Token token) {
  // The head is sorted by probability, hence scanned; the rest by token, hence
  // bisected.
  const uint32_t head = std::min(size, StaticPrior::kHead);
  uint32_t i = 0;
  // Blocks of eight without an early exit compile to vector compares.
  for (; i + 8 <= head; i += 8) {
    Token any = 0;
    for (uint32_t j = 0; j < 8; ++j) {
      any = static_cast<Token>(any | (tokens[i + j] == token));
    }
    if (any != 0) break;
  }
  for (; i < head; ++i) {
    if (tokens[i] == token) return i;
  }
  const Token* found = std::lower_bound(tokens + head, tokens + size, token);
  return found != tokens + size && *found == token ? found - tokens : -1;
}

}  // namespace

const std::array<float, 256> StaticPrior::kDecode = [] {
  std::array<float, 256> table{};
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<float>(
        std::exp2(-static_cast<double>(i) / kStepsPerOctave));
  }
  return table;
}();

uint8_t StaticPrior::Encode(double probability) {
  if (!(probability > 0.0)) return 255;  // 2^-16, the smallest value
  const double steps = std::round(-std::log2(probability) * kStepsPerOctave);
  return static_cast<uint8_t>(std::clamp(steps, 0.0, 255.0));
}

StaticPrior::List StaticPrior::AfterEntry(uint32_t entry) const {
  const PriorBlock& block = blocks_[entry / 64];
  const uint64_t bit = uint64_t{1} << (entry % 64);
  if ((block.has & bit) == 0) return List{};
  return ListOf(block.contexts + CountBits(block.has & (bit - 1)));
}

StaticPrior::List StaticPrior::ListOf(uint32_t context) const {
  const uint32_t sample = samples_[context / kPriorSampleStep];
  // Skip `left` list starts after the sampled one; the next start ends the
  // list.
  uint32_t left = context % kPriorSampleStep;
  uint32_t index = sample / 64;
  uint64_t word = blocks_[index].begins >> (sample % 64) << (sample % 64);
  for (uint32_t here = CountBits(word); here <= left; here = CountBits(word)) {
    left -= here;
    word = blocks_[++index].begins;
  }
  // word &= word - 1 clears the lowest set bit.
  for (; left > 0; --left) word &= word - 1;
  const uint32_t first =
      index * 64 + static_cast<uint32_t>(std::countr_zero(word));
  // Both are read soon and far apart in memory: fetch them while the end of the
  // list is computed.
  __builtin_prefetch(codes_ + first);
  const uint32_t at = first - vocab_size_;
  __builtin_prefetch(wide_ ? static_cast<const void*>(wide_tokens_ + at)
                           : static_cast<const void*>(narrow_tokens_ + at));
  word &= word - 1;
  while (word == 0 && ++index < block_count_) word = blocks_[index].begins;
  const uint32_t end =
      word == 0 ? entry_count_
                : index * 64 + static_cast<uint32_t>(std::countr_zero(word));
  return {first, end - first, kDecode[backoffs_[context]], backoffs_[context]};
}

int64_t StaticPrior::Find(const List& list, TokenId token) const {
  // The narrowing below must not map another id to one of the list.
  if (list.size == 0 || static_cast<uint32_t>(token) >= vocab_size_) return -1;
  const uint32_t at = list.first - vocab_size_;
  const int64_t found = wide_ ? FindIn<uint32_t>(wide_tokens_ + at, list.size,
                                                 static_cast<uint32_t>(token))
                              : FindIn<uint16_t>(narrow_tokens_ + at, list.size,
                                                 static_cast<uint16_t>(token));
  return found < 0 ? -1 : found + list.first;
}

// --- Opening -----------------------------------------------------------------

absl::StatusOr<std::shared_ptr<const StaticPrior>> StaticPrior::Open(
    const std::string& path, const Sha256Digest& tokenizer) {
  auto prior = std::make_shared<StaticPrior>();
  FORETOKEN_ASSIGN_OR_RETURN(prior->file_, MappedFile::Read(path));
  prior->data_ = prior->file_.bytes();
  return Finish(std::move(prior), path, tokenizer);
}

absl::StatusOr<std::shared_ptr<const StaticPrior>> StaticPrior::FromBytes(
    absl::Span<const uint8_t> bytes, const std::string& name,
    const Sha256Digest& tokenizer) {
  auto prior = std::make_shared<StaticPrior>();
  prior->owned_.resize((bytes.size() + 7) / 8);
  if (!bytes.empty()) {
    std::memcpy(prior->owned_.data(), bytes.data(), bytes.size());
  }
  prior->data_ = {reinterpret_cast<const uint8_t*>(prior->owned_.data()),
                  bytes.size()};
  return Finish(std::move(prior), name, tokenizer);
}

absl::StatusOr<std::shared_ptr<const StaticPrior>> StaticPrior::Finish(
    std::shared_ptr<StaticPrior> prior, const std::string& name,
    const Sha256Digest& tokenizer) {
  FORETOKEN_RETURN_IF_ERROR(prior->Bind(name, tokenizer));
  FORETOKEN_RETURN_IF_ERROR(prior->CheckIndices(name));
  return std::shared_ptr<const StaticPrior>(std::move(prior));
}

absl::Status StaticPrior::Bind(const std::string& name,
                               const Sha256Digest& tokenizer) {
  PriorHeader header;
  if (data_.size() < sizeof(header) + sizeof(Sha256Digest)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %d bytes, too short for a prior", name, data_.size()));
  }
  std::memcpy(&header, data_.data(), sizeof(header));
  if (std::memcmp(header.magic, kPriorMagic, sizeof(kPriorMagic)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: not a prior (wrong magic bytes)", name));
  }
  if (header.reserved != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: reserved field %d, want 0", name, header.reserved));
  }
  if (header.version != kPriorVersion) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: prior version %d, want %d", name, header.version, kPriorVersion));
  }
  if (header.order < 2 || header.order > kMaxOrder) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: order %d, want 2..%d", name, header.order, kMaxOrder));
  }
  if (header.vocab_size == 0 || header.vocab_size > kPriorMaxVocab ||
      header.entries < header.vocab_size || header.contexts > header.entries) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: sizes do not agree: vocab_size %d, entries %d, contexts %d", name,
        header.vocab_size, header.entries, header.contexts));
  }
  const PriorLayout at =
      PriorLayout::Of(header.vocab_size, header.entries, header.contexts);
  if (data_.size() != at.end) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %d bytes, the header asks for %d", name, data_.size(), at.end));
  }
  // Validated in full once, so that look-ups need no checks of their own.
  const Sha256Digest digest = Sha256().Update(data_.first(at.digest)).Finish();
  if (std::memcmp(digest.data(), data_.data() + at.digest, digest.size()) !=
      0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: checksum mismatch, the file is damaged", name));
  }
  if (header.tokenizer != tokenizer) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: prior of tokenizer %.16s..., in use is %.16s...", name,
        HexDigest(header.tokenizer), HexDigest(tokenizer)));
  }
  order_ = static_cast<int>(header.order);
  vocab_size_ = header.vocab_size;
  wide_ = vocab_size_ > kPriorMaxNarrowVocab;
  entry_count_ = header.entries;
  context_count_ = header.contexts;
  block_count_ = (entry_count_ + 63) / 64;
  for (int n = 1; n <= kMaxOrder; ++n)
    level_ends_[n] = header.level_ends[n - 1];
  const uint8_t* base = data_.data();
  codes_ = base + at.codes;
  narrow_tokens_ = reinterpret_cast<const uint16_t*>(base + at.tokens);
  wide_tokens_ = reinterpret_cast<const uint32_t*>(base + at.tokens);
  blocks_ = reinterpret_cast<const PriorBlock*>(base + at.blocks);
  samples_ = reinterpret_cast<const uint32_t*>(base + at.samples);
  backoffs_ = base + at.backoffs;
  return absl::OkStatus();
}

absl::Status StaticPrior::CheckIndices(const std::string& name) const {
  const auto bad = [&name](absl::string_view what, uint64_t index) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %s %d is out of order", name, what, index));
  };
  if (level_ends_[1] != vocab_size_ || level_ends_[kMaxOrder] != entry_count_) {
    return bad("level", 1);
  }
  for (int n = 2; n <= kMaxOrder; ++n) {
    if (level_ends_[n] < level_ends_[n - 1]) return bad("level", n);
  }
  // There are as many lists as contexts; the first begins right after the
  // unigrams, none past the end; running counts and samples agree with the
  // bits.
  uint32_t contexts = 0, lists = 0;
  for (uint32_t i = 0; i < block_count_; ++i) {
    const PriorBlock& block = blocks_[i];
    if (block.contexts != contexts || block.lists != lists) {
      return bad("block", i);
    }
    contexts += CountBits(block.has);
    for (uint64_t word = block.begins; word != 0; word &= word - 1) {
      const uint32_t entry =
          i * 64 + static_cast<uint32_t>(std::countr_zero(word));
      const bool sampled = lists % kPriorSampleStep == 0;
      if (entry >= entry_count_ || lists >= context_count_ ||
          (lists == 0 && entry != vocab_size_) ||
          (sampled && samples_[lists / kPriorSampleStep] != entry)) {
        return bad("list", lists);
      }
      ++lists;
    }
  }
  // Bits past the last entry must be clear.
  const uint32_t spare = block_count_ * 64 - entry_count_;
  if (contexts != context_count_ || lists != context_count_ ||
      (context_count_ == 0 && entry_count_ != vocab_size_) ||
      (spare != 0 && (blocks_[block_count_ - 1].has >> (64 - spare)) != 0)) {
    return bad("context", contexts);
  }
  for (uint32_t entry = vocab_size_; entry < entry_count_; ++entry) {
    if (static_cast<uint32_t>(TokenOf(entry)) >= vocab_size_) {
      return bad("token of entry", entry);
    }
  }
  // Find and Predict rely on the order within every list.
  for (uint32_t context = 0; context < context_count_; ++context) {
    const List list = ListOf(context);
    const uint32_t end = list.first + list.size;
    const uint32_t head = list.first + std::min(list.size, kHead);
    for (uint32_t entry = list.first + 1; entry < end; ++entry) {
      const bool ordered =
          entry < head ? codes_[entry - 1] <= codes_[entry]
                       : entry == head || TokenOf(entry - 1) < TokenOf(entry);
      if (!ordered) return bad("entry", entry);
    }
  }
  return absl::OkStatus();
}

}  // namespace foretoken
