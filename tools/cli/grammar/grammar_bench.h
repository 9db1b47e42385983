// The method of MaskBench: schemas with valid and invalid instances, fed token
// by token with the full mask computed before each token.
//
// Source: guidance-ai/jsonschemabench, "MaskBench".
#ifndef FORETOKEN_TOOLS_CLI_GRAMMAR_GRAMMAR_BENCH_H_
#define FORETOKEN_TOOLS_CLI_GRAMMAR_GRAMMAR_BENCH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"
#include "common/grammar/token_trie.h"
#include "common/text/tokenizer.h"

namespace foretoken::cli {

class GrammarBench {
 public:
  struct Row {
    std::string name;
    // pass, refused, valid_rejected, invalid_accepted or limit
    std::string status = "pass";
    std::string reason;
    std::vector<std::string> unchecked;  // keywords that were left out
    double compile_us = 0;
    int64_t masks = 0;
    double mask_us_sum = 0, mask_us_max = 0;
    int64_t tests = 0;
    Json ToJson() const;
  };

  explicit GrammarBench(std::shared_ptr<const Tokenizer> tokenizer);

  // `line`: {"name", "schema", "tests": [{"valid", "data"}]}. InvalidArgument
  // if it is something else.
  absl::StatusOr<Row> Run(absl::string_view line);

  // Over all rows so far.
  Json Summary() const;

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const grammar::TokenVocabulary> vocabulary_;
  int64_t rows_ = 0;
  std::map<std::string, int64_t> by_status_;
  std::vector<double> compiles_;  // us
  std::vector<double> masks_;     // us
};

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GRAMMAR_GRAMMAR_BENCH_H_
