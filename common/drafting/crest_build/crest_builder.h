// Builds a CREST datastore from a corpus.
//
//   tokens   tokenise into a token file            (corpus_tokens.h)
//   runs     sort n-grams into runs                (ngram_runs.h)
//   select   merge, count exactly, take the top t  (ngram_select.h)
//   trees    gather continuations, choose trees    (tree_builder.h)
//   publish  encode into a file or PostgreSQL      (DatastoreSink)
//
// Memory: at most memory_bytes; if necessary, fewer threads are used.
//
// Each phase ends with a checkpoint in the work folder, and a killed build
// resumes after the last one. The result depends only on corpus, tokenizer and
// options, not on memory, threads or interruptions.
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

struct CrestBuildOptions : CrestRecipe {
  CorpusOptions corpus = DefaultCorpus();
  // Limit on the resident memory of the whole process, tokenizer included.
  uint64_t memory_bytes = uint64_t{1} << 30;
  int threads = 1;
  std::string work_folder;
  bool progress = true;  // bars on stderr

  // Lines of up to 4 MiB: reading and tokenising a line takes about 24 times
  // its size, which memory_bytes must accommodate. The limit affects which rows
  // a corpus has, so it is never derived from the memory.
  static CorpusOptions DefaultCorpus() {
    CorpusOptions corpus;
    corpus.max_line_bytes = size_t{4} << 20;
    return corpus;
  }

  // InvalidArgument names every field out of range.
  absl::Status Validate() const;
};

struct CrestBuildReport {
  CrestMeta meta;
  int64_t version = 0;  // as DatastoreSink::Publish numbers it
  // Cumulative n-gram frequencies, [n - 1].
  std::array<std::vector<CoveragePoint>, kMaxCrestN> coverage;
  int64_t excluded_documents = 0;
  int64_t invalid_documents = 0;
  int64_t broken_files = 0;  // could not be read to their end
  struct Phase {
    std::string name;
    double seconds;
    bool resumed;  // finished by an earlier process
  };
  std::vector<Phase> phases;
  int threads = 0;  // in use: fewer than requested if memory is short
  uint64_t peak_memory_bytes = 0;
};

// Opens the destination of the datastore. Called once, after all trees are
// built. The totals in `meta` are not final yet, except for table_tokens.
using SinkFactory =
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<DatastoreSink>>(
        const CrestMeta& meta, const TokenTable& table)>;

// InvalidArgument for options out of range, an empty corpus, or one without any
// n-gram of min_count; ResourceExhausted if memory_bytes is too small;
// otherwise errors of the corpus, the disk or the sink.
absl::StatusOr<CrestBuildReport> BuildCrest(const CrestBuildOptions& options,
                                            const Tokenizer& tokenizer,
                                            SinkFactory open_sink);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_CREST_BUILDER_H_
