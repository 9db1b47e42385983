// OutputCheck: that every mode gives the same tokens for the same prompt, seed
// and sampling, as it must.
//
// Holds the longest output seen of every prompt. Thread-compatible.
#ifndef FORETOKEN_TOOLS_CLI_MODE_BENCH_OUTPUT_CHECK_H_
#define FORETOKEN_TOOLS_CLI_MODE_BENCH_OUTPUT_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken::mode_bench {

class OutputCheck {
 public:
  // Compares an output of at most `max_tokens` with those of the same prompt so
  // far: of two, the one with the lower limit must be the other cut to that
  // limit. DataLoss names the prompt (from 1), the first position that differs,
  // and both modes.
  absl::Status Add(const std::string& mode, size_t prompt,
                   absl::Span<const TokenId> tokens, int64_t max_tokens);

  // Tokens that were compared with another output's.
  int64_t compared() const { return compared_; }

 private:
  struct Reference {
    std::string mode;
    std::vector<TokenId> tokens;
    int64_t max_tokens = 0;
  };
  absl::flat_hash_map<size_t, Reference> references_;
  int64_t compared_ = 0;
};

}  // namespace foretoken::mode_bench

#endif  // FORETOKEN_TOOLS_CLI_MODE_BENCH_OUTPUT_CHECK_H_
