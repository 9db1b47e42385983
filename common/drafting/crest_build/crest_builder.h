// Builds a CREST datastore from a corpus.
//
//   tokens   tokenise into a token file            (corpus_tokens.h)
//   runs     sort n-grams into runs                (ngram_runs.h)
//   select   merge, count exactly, take the top t  (ngram_select.h)
//   trees    gather continuations, choose trees    (tree_builder.h)
//   publish  encode into a file or PostgreSQL      (DatastoreSink)
//
// Memory: at most memory_bytes, for which threads are left idle if need be.
//
// Each phase ends with a checkpoint in the work folder: a build that was killed
// goes on after the last one. The result depends on corpus, tokenizer and
// options alone, not on memory, threads or interruptions.
//
// Source: CREST, arXiv:2408.04678, section 3.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_CREST_BUILDER_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_CREST_BUILDER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/drafting/corpus_reader.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/snapshot_writer.h"
#include "common/drafting/crest_build/count_histogram.h"
#include "common/text/tokenizer.h"

namespace foretoken {

struct CrestBuildOptions {
  CorpusOptions corpus = DefaultCorpus();
  int min_n = 1;
  int max_n = 3;
  uint64_t top = 16000;  // n-grams of each n
  uint64_t min_count = 2;
  uint32_t tree_nodes = 64;
  uint32_t max_matches = 5000;
  uint32_t continuation = 10;
  TreeSelection selection = TreeSelection::kBest;
  MatchSample sample = MatchSample::kUniform;
  uint64_t seed = 1;
  // Resident memory of the whole process, tokenizer included.
  uint64_t memory_bytes = uint64_t{1} << 30;
  int threads = 1;
  std::string work_folder;
  bool progress = true;  // bars on stderr

  // Lines of 4 MiB: reading and tokenising one takes some 24 times its bytes,
  // which memory_bytes must hold. The limit decides what a corpus is, so that
  // it is never derived from the memory.
  static CorpusOptions DefaultCorpus() {
    CorpusOptions corpus;
    corpus.max_line_bytes = size_t{4} << 20;
    return corpus;
  }
  static constexpr int64_t kMaxTop = int64_t{1} << 40;
  static constexpr int kMaxMatches = 10'000'000;
  static constexpr int kMaxContinuation = 64;

  // InvalidArgument naming the first field out of its range.
  absl::Status Validate() const;
};

struct CrestBuildReport {
  CrestMeta meta;
  // Cumulative n-gram frequencies, [n - 1].
  std::array<std::vector<CoveragePoint>, kMaxCrestN> coverage;
  int64_t excluded_documents = 0;
  int64_t invalid_documents = 0;
  int64_t broken_files = 0;  // not read to their end
  struct Phase {
    std::string name;
    double seconds;
    bool resumed;  // finished by an earlier process
  };
  std::vector<Phase> phases;
  int threads = 0;  // at work: fewer than asked for where memory is short
  uint64_t peak_memory_bytes = 0;
};

// Opens the place that takes the datastore; called once, when all trees are
// there. The meta's totals are not final yet, its table_tokens are.
using SinkFactory =
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<DatastoreSink>>(
        const CrestMeta& meta, const TokenTable& table)>;

// InvalidArgument for options out of range, an empty corpus, or one in which no
// n-gram reaches min_count; ResourceExhausted where memory_bytes is too little
// to work in; else what corpus, disk or sink report.
absl::StatusOr<CrestBuildReport> BuildCrest(const CrestBuildOptions& options,
                                            const Tokenizer& tokenizer,
                                            SinkFactory open_sink);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_CREST_BUILDER_H_
