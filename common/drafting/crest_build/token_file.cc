#include "common/drafting/crest_build/token_file.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/drafting/crest_build/ngram_key.h"

namespace foretoken {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

}  // namespace

TokenFileWriter::TokenFileWriter(SpillFile& file, int32_t vocab_size)
    : file_(file),
      token_bytes_(TokenBytesFor(vocab_size)),
      unigrams_(vocab_size, 0) {}

absl::Status TokenFileWriter::AddDocument(absl::Span<const TokenId> tokens) {
  if (tokens.empty()) return absl::OkStatus();
  // The zero that ends the document is already there.
  const size_t begin = buffer_.size();
  // Zeros: the token after the last stays 0, which ends the document.
  buffer_.resize(begin + (tokens.size() + 1) * token_bytes_, 0);
  uint8_t* at = buffer_.data() + begin;
  for (const TokenId token : tokens) {
    if (token < 0 || static_cast<size_t>(token) >= unigrams_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("document ", documents_, ": token ", token, ", want 0..",
                       unigrams_.size() - 1));
    }
    ++unigrams_[token];
    // Token + 1, because 0 ends a document.
    StoreToken(static_cast<uint32_t>(token) + 1, token_bytes_, at);
    at += token_bytes_;
  }
  ++documents_;
  tokens_ += tokens.size();
  // Written in large pieces; the rest by Finish.
  if (buffer_.size() < kBufferBytes) return absl::OkStatus();
  return Finish();
}

absl::Status TokenFileWriter::Finish() {
  FORETOKEN_RETURN_IF_ERROR(file_.Append(buffer_.data(), buffer_.size()));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status TokenFile::Read(uint64_t first, uint64_t count, uint64_t ahead,
                             std::vector<uint8_t>& bytes) const {
  // Positions past the end read as document ends.
  const uint64_t wanted = count + ahead;
  const uint64_t there = std::min(wanted, positions_ - first);
  // Padded, so that the key of the last position can be loaded in whole words.
  bytes.assign(wanted * token_bytes_ + kPadBytes, 0);
  return file_.Read(first * token_bytes_, bytes.data(), there * token_bytes_);
}

}  // namespace foretoken
