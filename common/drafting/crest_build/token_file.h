// The corpus as token ids on disk, read by every later pass.
//
// Tokens are stored as in ngram_key.h, followed by one 0 after each document.
// Positions count both tokens and document ends.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_TOKEN_FILE_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_TOKEN_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/drafting/crest_build/spill_file.h"

namespace foretoken {

// Owned by one thread.
class TokenFileWriter {
 public:
  TokenFileWriter(SpillFile& file, int32_t vocab_size);

  // InvalidArgument for a token outside the vocabulary. Empty documents are
  // ignored.
  absl::Status AddDocument(absl::Span<const TokenId> tokens);
  // Writes the buffered tokens.
  absl::Status Finish();

  uint64_t documents() const { return documents_; }
  uint64_t tokens() const { return tokens_; }
  // Occurrences of each token, [vocab_size].
  const std::vector<uint64_t>& unigrams() const { return unigrams_; }

 private:
  SpillFile& file_;
  const int token_bytes_;
  std::vector<uint8_t> buffer_;
  std::vector<uint64_t> unigrams_;
  uint64_t documents_ = 0;
  uint64_t tokens_ = 0;
};

// Thread-safe.
class TokenFile {
 public:
  TokenFile(const SpillFile& file, int token_bytes)
      : file_(file),
        token_bytes_(token_bytes),
        positions_(file.size() / token_bytes) {}

  uint64_t positions() const { return positions_; }
  int token_bytes() const { return token_bytes_; }

  // Reads positions first..first+count+ahead-1, as far as they exist, padded
  // with zeros (document ends) plus kPadBytes more.
  absl::Status Read(uint64_t first, uint64_t count, uint64_t ahead,
                    std::vector<uint8_t>& bytes) const;

  // Loading a key may read this far past the last position.
  static constexpr int kPadBytes = 32;

 private:
  const SpillFile& file_;
  const int token_bytes_;
  const uint64_t positions_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_TOKEN_FILE_H_
