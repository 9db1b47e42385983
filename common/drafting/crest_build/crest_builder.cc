#include "common/drafting/crest_build/crest_builder.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/progress_bar.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/drafting/crest/crest_index.h"
#include "common/drafting/crest_build/corpus_tokens.h"
#include "common/drafting/crest_build/memory_use.h"
#include "common/drafting/crest_build/ngram_runs.h"
#include "common/drafting/crest_build/ngram_select.h"
#include "common/drafting/crest_build/token_file.h"
#include "common/drafting/crest_build/tree_builder.h"
#include "common/drafting/crest_build/work_folder.h"
#include "xxhash.h"

namespace foretoken {
namespace {

// Reserved for stacks, stream buffers and allocator overhead.
constexpr uint64_t kReserveBytes = uint64_t{12} << 20;
// Peak memory per byte of a line while it is read, parsed and tokenised:
// several copies of its bytes, plus the tokenizer's state.
constexpr uint64_t kBytesPerLineByte = 24;
constexpr uint64_t kLeastPhaseBytes = uint64_t{16} << 20;
// Upper bound of a record: 256 nodes of at most 14 bytes, and the head.
constexpr size_t kMaxRecordBytes = 4096;
constexpr size_t kReadBytes = size_t{1} << 20;

// Identifies a file by path, size and modification time, without reading it.
void DescribeFile(const std::string& path, Json& out) {
  std::error_code ignored;
  out.push_back({path, std::filesystem::file_size(path, ignored),
                 std::filesystem::last_write_time(path, ignored)
                     .time_since_epoch()
                     .count()});
}

// Digest of everything that affects the result.
std::string BuildKey(const CrestBuildOptions& options,
                     const Tokenizer& tokenizer, const CorpusReader& corpus) {
  Json key = RecipeJson(options);
  key.update({{"format", 2},
              {"tokenizer", HexDigest(tokenizer.fingerprint())},
              {"skip_invalid", options.corpus.skip_invalid},
              {"max_line_bytes", options.corpus.max_line_bytes},
              {"files", Json::array()},
              {"exclude", Json::array()}});
  for (const std::string& path : corpus.files()) {
    DescribeFile(path, key["files"]);
  }
  for (const std::string& path : options.corpus.exclude_id_files) {
    DescribeFile(path, key["exclude"]);
  }
  return HexDigest(Sha256().Update(DumpJson(key)).Finish());
}

TokenTable TableByFrequency(const std::vector<uint64_t>& uses) {
  std::vector<TokenId> by_rank;
  for (size_t token = 0; token < uses.size(); ++token) {
    if (uses[token] > 0) by_rank.push_back(static_cast<TokenId>(token));
  }
  // Stable, so that ties go by token id and the result is deterministic.
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [&](TokenId a, TokenId b) { return uses[a] > uses[b]; });
  // The tokens are distinct and inside the vocabulary by construction.
  return *TokenTable::Create(std::move(by_rank),
                             static_cast<int32_t>(uses.size()));
}

// Fixed memory of a thread in any phase: its stack, a chunk of keys, merge
// buffers, trees not yet written.
uint64_t ThreadBytes(const CrestBuildOptions& options,
                     const Tokenizer& tokenizer) {
  constexpr uint64_t kCountingBytes = uint64_t{4} << 20;
  return std::max(kCountingBytes,
                  TreeThreadBytes(options.tree_nodes, tokenizer.vocab_size()));
}

uint64_t TakenBytes() { return ResidentBytes() + kReserveBytes; }

// Uses as many threads as requested, as long as they take at most half of the
// memory.
int ThreadsFor(const CrestBuildOptions& options, const Tokenizer& tokenizer) {
  const uint64_t taken = TakenBytes();
  const uint64_t free =
      options.memory_bytes - std::min(options.memory_bytes, taken);
  const uint64_t room = free / 2 / ThreadBytes(options, tokenizer);
  const int threads = static_cast<int>(
      std::clamp<uint64_t>(room, 1, static_cast<uint64_t>(options.threads)));
  if (threads < options.threads) {
    FORETOKEN_LOG(kInfo, "crest build: using ", threads, " of ",
                  options.threads, " threads, limited by memory");
  }
  return threads;
}

class Builder {
 public:
  Builder(const CrestBuildOptions& options, const Tokenizer& tokenizer)
      : options_(options),
        tokenizer_(tokenizer),
        layout_{TokenBytesFor(tokenizer.vocab_size()),
                static_cast<int>(options.max_n)},
        pool_(ThreadsFor(options, tokenizer)) {}

  absl::StatusOr<CrestBuildReport> Build(SinkFactory open_sink) {
    FORETOKEN_ASSIGN_OR_RETURN(corpus_, CorpusReader::Open(options_.corpus));
    FORETOKEN_ASSIGN_OR_RETURN(
        work_, WorkFolder::Open(options_.work_folder,
                                BuildKey(options_, tokenizer_, *corpus_)));
    FillMeta();
    // A phase reads only what earlier ones have finished on disk, so that a
    // build that was killed goes on with the first unfinished phase.
    FORETOKEN_RETURN_IF_ERROR(Phase("tokens", &Builder::Tokenise));
    FORETOKEN_RETURN_IF_ERROR(Phase("runs", &Builder::WriteRuns));
    FORETOKEN_RETURN_IF_ERROR(Phase("select", &Builder::Select));
    FORETOKEN_RETURN_IF_ERROR(Phase("trees", &Builder::MakeTrees));
    const absl::Time start = MonotonicNow();
    FORETOKEN_RETURN_IF_ERROR(Publish(open_sink));
    report_.phases.push_back(
        {"publish", absl::ToDoubleSeconds(MonotonicNow() - start), false});
    report_.threads = pool_.threads();
    report_.peak_memory_bytes = PeakResidentBytes();
    // Close the files before their folder is removed.
    token_file_.reset();
    trees_.reset();
    work_->RemoveAll();
    return std::move(report_);
  }

 private:
  absl::Status Phase(const char* name, absl::Status (Builder::*run)()) {
    const absl::Time start = MonotonicNow();
    const bool resumed = work_->Finished(name) != nullptr;
    FORETOKEN_RETURN_IF_ERROR((this->*run)());
    // The next phase budgets by resident size, which includes freed memory that
    // the allocator has kept.
    ReleaseFreeMemory();
    report_.phases.push_back(
        {name, absl::ToDoubleSeconds(MonotonicNow() - start), resumed});
    return absl::OkStatus();
  }

  // Memory that the current phase may allocate; at least `least`.
  absl::StatusOr<uint64_t> PhaseMemory(
      uint64_t least = kLeastPhaseBytes) const {
    const uint64_t taken = TakenBytes();
    if (options_.memory_bytes < taken + least) {
      return absl::ResourceExhaustedError(
          absl::StrCat("memory: ", options_.memory_bytes, " bytes, want ",
                       taken + least, " or more"));
    }
    return options_.memory_bytes - taken;
  }

  uint64_t LeastToTokenise() const {
    return std::max(kLeastPhaseBytes,
                    kBytesPerLineByte * options_.corpus.max_line_bytes);
  }

  StageOptions Stage(uint64_t memory) const {
    return {options_, layout_, memory, options_.progress};
  }

  void FillMeta() {
    CrestMeta& meta = report_.meta;
    meta.tokenizer_fingerprint = tokenizer_.fingerprint();
    meta.vocab_size = static_cast<uint32_t>(tokenizer_.vocab_size());
    static_cast<CrestRecipe&>(meta) = options_;
  }

  absl::Status Tokenise();
  absl::Status WriteRuns();
  absl::Status Select();
  absl::Status MakeTrees();
  absl::Status Publish(SinkFactory open_sink);
  absl::Status EncodeInto(const TokenTable& from, const TokenTable& to,
                          DatastoreSink& sink);

  const CrestBuildOptions& options_;
  const Tokenizer& tokenizer_;
  const KeyLayout layout_;
  ThreadPool pool_;
  std::unique_ptr<CorpusReader> corpus_;
  std::unique_ptr<WorkFolder> work_;
  std::unique_ptr<SpillFile> token_file_;
  std::unique_ptr<SpillFile> trees_;
  std::vector<uint64_t> unigrams_;
  uint64_t selected_ = 0;
  std::vector<uint64_t> token_uses_;
  CrestBuildReport report_;
};

absl::Status Builder::Tokenise() {
  const Json* done = work_->Finished("tokens");
  if (done == nullptr) {
    // Before hours of work: the longest line decides whether memory suffices.
    absl::Status enough = PhaseMemory(LeastToTokenise()).status();
    if (!enough.ok()) {
      return Annotate(enough,
                      absl::StrCat("lines of up to ",
                                   options_.corpus.max_line_bytes, " bytes"));
    }
    FORETOKEN_ASSIGN_OR_RETURN(token_file_, work_->CreateFile("tokens"));
    TokenFileWriter writer(*token_file_, tokenizer_.vocab_size());
    {
      Progress progress("tokenise", corpus_->total_bytes(), "B",
                        options_.progress);
      FORETOKEN_RETURN_IF_ERROR(
          WriteCorpusTokens(*corpus_, tokenizer_, pool_, writer, progress));
    }
    FORETOKEN_RETURN_IF_ERROR(
        work_->Finish("tokens",
                      {{"documents", writer.documents()},
                       {"tokens", writer.tokens()},
                       {"unigrams", writer.unigrams()},
                       {"excluded", corpus_->excluded()},
                       {"invalid", corpus_->invalid()},
                       {"broken", corpus_->broken_files()}},
                      {token_file_.get()}));
    done = work_->Finished("tokens");
  } else {
    FORETOKEN_ASSIGN_OR_RETURN(token_file_, work_->OpenFile("tokens"));
  }
  // A phase that ran now and one that ran before a restart both leave their
  // numbers in the state file: read them there in either case.
  unigrams_ = done->at("unigrams").get<std::vector<uint64_t>>();
  report_.meta.corpus_documents = done->at("documents");
  report_.meta.corpus_tokens = done->at("tokens");
  report_.excluded_documents = done->at("excluded");
  report_.invalid_documents = done->at("invalid");
  report_.broken_files = done->at("broken");
  if (report_.invalid_documents > 0) {
    FORETOKEN_LOG(kWarning, "crest build: skipped ", report_.invalid_documents,
                  " invalid documents; ", report_.broken_files,
                  " files could not be read to their end");
  }
  if (report_.meta.corpus_tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("corpus: no text in ", corpus_->files().size(),
                     corpus_->files().size() == 1 ? " file" : " files"));
  }
  return absl::OkStatus();
}

absl::Status Builder::WriteRuns() {
  // Later phases do not need the runs, so they are not opened when resuming.
  if (work_->Finished("runs") != nullptr) return absl::OkStatus();
  FORETOKEN_ASSIGN_OR_RETURN(const uint64_t memory, PhaseMemory());
  FORETOKEN_ASSIGN_OR_RETURN(auto file, work_->CreateFile("runs"));
  const TokenFile tokens(*token_file_, layout_.token_bytes);
  Progress progress("sort n-grams", tokens.positions(), "tokens",
                    options_.progress);
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::vector<NgramRun> runs,
      WriteNgramRuns(tokens, Stage(memory), pool_, *file, progress));
  Json list = Json::array();
  for (const NgramRun& run : runs) list.push_back({run.offset, run.records});
  return work_->Finish("runs", {{"runs", std::move(list)}}, {file.get()});
}

absl::Status Builder::Select() {
  const Json* done = work_->Finished("select");
  if (done == nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(const uint64_t memory, PhaseMemory());
    const Json& runs_state = *work_->Finished("runs");
    FORETOKEN_ASSIGN_OR_RETURN(auto run_file, work_->OpenFile("runs"));
    std::vector<NgramRun> runs;
    uint64_t records = 0;
    for (const Json& run : runs_state.at("runs")) {
      runs.push_back({run.at(0), run.at(1)});
      records += runs.back().records;
    }
    FORETOKEN_ASSIGN_OR_RETURN(auto merged, work_->CreateFile("merged"));
    FORETOKEN_ASSIGN_OR_RETURN(auto candidates,
                               work_->CreateFile("candidates"));
    FORETOKEN_ASSIGN_OR_RETURN(auto selected, work_->CreateFile("selected"));
    const uint64_t threads = static_cast<uint64_t>(pool_.threads());
    // The threads' fixed buffers are not part of the merge's budget.
    const StageOptions select = Stage(
        memory - std::min(memory, threads * ThreadBytes(options_, tokenizer_)));
    Progress progress("count n-grams", records, "records", options_.progress);
    FORETOKEN_ASSIGN_OR_RETURN(
        const NgramSelection selection,
        SelectNgrams(*run_file, std::move(runs), unigrams_, select, pool_,
                     *merged, *candidates, *selected, progress));
    Json levels = Json::array();
    for (int n = 1; n <= kMaxCrestN; ++n) {
      const CrestLevelMeta& level = selection.levels[n - 1];
      Json coverage = Json::array();
      for (const CoveragePoint& point : selection.coverage[n - 1]) {
        coverage.push_back({point.rank, point.share});
      }
      levels.push_back(
          {level.distinct, level.occurrences, std::move(coverage)});
    }
    FORETOKEN_RETURN_IF_ERROR(work_->Finish(
        "select",
        {{"selected", selection.selected}, {"levels", std::move(levels)}},
        {selected.get()}, {"runs", "merged", "candidates"}));
    done = work_->Finished("select");
  }
  selected_ = done->at("selected");
  for (int n = 1; n <= kMaxCrestN; ++n) {
    const Json& level = done->at("levels").at(n - 1);
    report_.meta.levels[n - 1].distinct = level.at(0);
    report_.meta.levels[n - 1].occurrences = level.at(1);
    for (const Json& point : level.at(2)) {
      report_.coverage[n - 1].push_back({point.at(0), point.at(1)});
    }
  }
  if (selected_ == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("corpus: no n-gram of ", options_.min_n, "..",
                     options_.max_n, " tokens occurs ", options_.min_count,
                     " times in ", report_.meta.corpus_tokens, " tokens"));
  }
  return absl::OkStatus();
}

absl::Status Builder::MakeTrees() {
  const Json* done = work_->Finished("trees");
  if (done == nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(const uint64_t memory, PhaseMemory());
    FORETOKEN_ASSIGN_OR_RETURN(auto selected, work_->OpenFile("selected"));
    FORETOKEN_ASSIGN_OR_RETURN(trees_, work_->CreateFile("trees"));
    const TokenFile tokens(*token_file_, layout_.token_bytes);
    // Encode with a provisional token table, by corpus frequency: the final one
    // needs the uses of tokens in all trees.
    FORETOKEN_ASSIGN_OR_RETURN(
        const TreeTotals totals,
        BuildTrees(tokens, *selected, selected_, Stage(memory),
                   TableByFrequency(unigrams_), tokenizer_.vocab_size(), pool_,
                   *trees_));
    Json levels = Json::array();
    for (const TreeTotals::Level& level : totals.levels) {
      levels.push_back({level.entries, level.least_count});
    }
    FORETOKEN_RETURN_IF_ERROR(work_->Finish("trees",
                                            {{"entries", totals.entries},
                                             {"nodes", totals.nodes},
                                             {"levels", std::move(levels)},
                                             {"uses", totals.token_uses}},
                                            {trees_.get()}));
    done = work_->Finished("trees");
  } else {
    FORETOKEN_ASSIGN_OR_RETURN(trees_, work_->OpenFile("trees"));
  }
  report_.meta.entries = done->at("entries");
  report_.meta.nodes = done->at("nodes");
  for (size_t n = 0; n < report_.meta.levels.size(); ++n) {
    report_.meta.levels[n].kept = done->at("levels").at(n).at(0);
    report_.meta.levels[n].least_count = done->at("levels").at(n).at(1);
  }
  token_uses_ = done->at("uses").get<std::vector<uint64_t>>();
  if (report_.meta.entries == 0) {
    return absl::InvalidArgumentError(
        "corpus: none of the selected n-grams is ever followed by a token");
  }
  return absl::OkStatus();
}

absl::Status Builder::Publish(SinkFactory open_sink) {
  const TokenTable table = TableByFrequency(token_uses_);
  CrestMeta& meta = report_.meta;
  meta.table_tokens = table.by_rank().size();
  const std::string table_bytes = EncodeTokenTable(table, meta);
  // The sink gets `meta` twice: the table's part now, the totals of the records
  // in Publish.
  meta.table_digest = XXH3_64bits(table_bytes.data(), table_bytes.size());
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<DatastoreSink> sink,
                             open_sink(meta, table));
  FORETOKEN_RETURN_IF_ERROR(
      // MakeTrees encoded them with the table by corpus frequency.
      EncodeInto(TableByFrequency(unigrams_), table, *sink));
  FORETOKEN_ASSIGN_OR_RETURN(report_.version, sink->Publish(meta));
  return absl::OkStatus();
}

// Re-encodes the trees with the final token table and passes them to `sink`.
absl::Status Builder::EncodeInto(const TokenTable& from, const TokenTable& to,
                                 DatastoreSink& sink) {
  CrestMeta& meta = report_.meta;
  Progress progress("publish", meta.entries, "n-grams", options_.progress);
  XXH3_state_t* digest = XXH3_createState();
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> owner(
      digest, &XXH3_freeState);
  XXH3_64bits_reset(digest);
  std::vector<uint8_t> bytes;
  uint64_t read = 0;
  size_t at = 0;
  RecordView view;
  CrestTree tree;
  std::string record;
  for (uint64_t entry = 0; entry < meta.entries; ++entry) {
    // Keep at least one whole record buffered.
    if (bytes.size() - at < kMaxRecordBytes && read < trees_->size()) {
      // Moves less than a record: the rest has been consumed.
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<int64_t>(at));
      at = 0;
      const size_t old = bytes.size();
      const size_t more = static_cast<size_t>(
          std::min<uint64_t>(kReadBytes, trees_->size() - read));
      bytes.resize(old + more);
      FORETOKEN_RETURN_IF_ERROR(trees_->Read(read, bytes.data() + old, more));
      read += more;
    }
    FORETOKEN_RETURN_IF_ERROR(
        ParseRecord(absl::MakeConstSpan(bytes).subspan(at), from, view, tree));
    at += view.bytes;
    const absl::Span<const TokenId> ngram(view.ngram,
                                          static_cast<size_t>(view.n));
    record.clear();
    AppendRecord(ngram, tree, to, record);
    meta.record_bytes += record.size();
    // A sum, which needs no order: PostgreSQL returns rows in any.
    meta.record_digest_sum += XXH3_64bits(record.data(), record.size());
    XXH3_64bits_update(digest, record.data(), record.size());
    FORETOKEN_RETURN_IF_ERROR(sink.Add(HashNgram(ngram), record));
    if (entry % 1024 == 1023) progress.Advance(1024);
  }
  progress.Set(meta.entries);
  meta.record_digest = XXH3_64bits_digest(digest);
  return absl::OkStatus();
}

}  // namespace

absl::Status CrestBuildOptions::Validate() const {
  RangeErrors errors;
  Check(errors);
  errors.Check("max_line_bytes", corpus.max_line_bytes, 1 << 10, 1 << 30);
  errors.Check("threads", threads, 1, ThreadPool::kMaxThreads);
  FORETOKEN_RETURN_IF_ERROR(errors.status());
  if (work_folder.empty()) {
    return absl::InvalidArgumentError("work_folder: missing");
  }
  return absl::OkStatus();
}

absl::StatusOr<CrestBuildReport> BuildCrest(const CrestBuildOptions& options,
                                            const Tokenizer& tokenizer,
                                            SinkFactory open_sink) {
  FORETOKEN_RETURN_IF_ERROR(options.Validate());
  return Builder(options, tokenizer).Build(open_sink);
}

}  // namespace foretoken
