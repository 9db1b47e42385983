// foretoken crest: build, inspect and look up CREST datastores.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/drafting/crest/crest_source.h"
#include "common/drafting/crest/snapshot_writer.h"
#include "common/drafting/crest_build/crest_builder.h"
#include "common/text/tokenizer.h"
#include "tools/cli/command.h"
#include "tools/cli/crest_stores.h"
#include "tools/cli/shared_options.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

struct BuildFlags {
  CrestBuildOptions options;
  std::string tokenizer;
  int max_n = 0;
  int only_n = 0;
  std::string selection = "best";
  std::string sample = "uniform";
  std::string memory = "1GiB";
  std::string max_line = "4MiB";
  std::string out;
  std::string name;
  std::string index;  // empty: the default
  std::string work;
};

Json MetaJson(const CrestMeta& meta) {
  Json levels = Json::array();
  for (uint32_t n = meta.min_n; n <= meta.max_n; ++n) {
    // Levels are stored by n, from 1; those below min_n are empty with
    // --only-n.
    const CrestLevelMeta& level = meta.levels[n - 1];
    levels.push_back({{"n", n},
                      {"distinct", level.distinct},
                      {"occurrences", level.occurrences},
                      {"kept", level.kept},
                      {"least_count", level.least_count}});
  }
  const uint64_t bytes =
      CrestMetaBytes() + meta.table_bytes() + meta.record_bytes;
  const auto per = [](uint64_t sum, uint64_t count) {
    // An empty datastore is valid and has no mean.
    return count == 0 ? 0.0
                      : static_cast<double>(sum) / static_cast<double>(count);
  };
  Json json = RecipeJson(meta);
  json.update({{"tokenizer_fingerprint", HexDigest(meta.tokenizer_fingerprint)},
               {"vocab_size", meta.vocab_size},
               {"corpus_documents", meta.corpus_documents},
               {"corpus_tokens", meta.corpus_tokens},
               {"entries", meta.entries},
               {"nodes", meta.nodes},
               {"mean_nodes", per(meta.nodes, meta.entries)},
               {"bytes", bytes},
               {"bytes_per_node", per(bytes, meta.nodes)},
               {"levels", std::move(levels)}});
  return json;
}

Json ReportJson(const CrestBuildReport& report) {
  Json json = MetaJson(report.meta);
  for (Json& level : json["levels"]) {
    Json coverage = Json::array();
    for (const CoveragePoint& point :
         // Same order as the levels: index n - 1.
         report.coverage[level["n"].get<size_t>() - 1]) {
      coverage.push_back({point.rank, point.share});
    }
    level["coverage"] = std::move(coverage);
  }
  Json phases = Json::array();
  for (const CrestBuildReport::Phase& phase : report.phases) {
    phases.push_back({{"name", phase.name},
                      {"seconds", phase.seconds},
                      {"resumed", phase.resumed}});
  }
  json["phases"] = std::move(phases);
  json["excluded_documents"] = report.excluded_documents;
  json["invalid_documents"] = report.invalid_documents;
  json["broken_files"] = report.broken_files;
  json["threads"] = report.threads;
  json["peak_memory_bytes"] = report.peak_memory_bytes;
  return json;
}

absl::Status FinishOptions(BuildFlags& flags) {
  CrestBuildOptions& options = flags.options;
  if (flags.out.empty() == flags.name.empty()) {
    return absl::InvalidArgumentError("want one of --out and --name");
  }
  // Set late, so that "not given" can be told from "given as the default".
  if (flags.index.empty()) {
    flags.index = "btree";
  } else if (flags.name.empty()) {
    return absl::InvalidArgumentError(
        "--index: a snapshot file has none, want --name");
  }
  // The two say the same thing in different ways; with both, one would be
  // ignored.
  if ((flags.max_n > 0) == (flags.only_n > 0)) {
    return absl::InvalidArgumentError("want one of --max-n and --only-n");
  }
  options.max_n = flags.max_n > 0 ? flags.max_n : flags.only_n;
  options.min_n = flags.max_n > 0 ? 1 : flags.only_n;
  options.selection =
      flags.selection == "rest" ? TreeSelection::kRest : TreeSelection::kBest;
  options.sample =
      flags.sample == "first" ? MatchSample::kFirst : MatchSample::kUniform;
  FORETOKEN_ASSIGN_OR_RETURN(options.memory_bytes,
                             ParseBytes("--memory", flags.memory));
  FORETOKEN_ASSIGN_OR_RETURN(options.corpus.max_line_bytes,
                             ParseBytes("--max-line", flags.max_line));
  std::error_code error;
  const std::filesystem::path scratch =
      std::filesystem::temp_directory_path(error);
  if (error) {
    return absl::FailedPreconditionError(
        "no folder for temporary files: pass --work, or set TMPDIR");
  }
  // Beside the output by default: it has room for a file of that size, and a
  // second run of the same command finds the work of an interrupted one there.
  options.work_folder =
      !flags.work.empty() ? flags.work
      : !flags.out.empty()
          ? flags.out + ".work"
          : (scratch / ("foretoken-crest-" + flags.name + ".work")).string();
  return options.Validate();
}

absl::Status Build(BuildFlags flags) {
  FORETOKEN_RETURN_IF_ERROR(FinishOptions(flags));
  // Better to fail here than after hours of building.
  FORETOKEN_RETURN_IF_ERROR(CheckTarget(flags.out, flags.name));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                             Tokenizer::Load(flags.tokenizer));
  FORETOKEN_ASSIGN_OR_RETURN(
      const CrestBuildReport report,
      BuildCrest(flags.options, *tokenizer,
                 [&](const CrestMeta& meta, const TokenTable& table) {
                   // The sink is opened late in the build, when the table is
                   // known; CheckTarget has seen to it that this will work.
                   return OpenSink(flags.out, flags.name, flags.index, meta,
                                   table);
                 }));
  return WriteJson(ReportJson(report));
}

struct StoreFlags {
  std::string store;
  std::string ids;
  std::string tokenizer;
  std::string index_memory = "0";
  int64_t version = 0;
};

absl::Status Lookup(const StoreFlags& flags) {
  std::vector<TokenId> context;
  for (const absl::string_view id : absl::StrSplit(flags.ids, ',')) {
    TokenId token = 0;
    if (!absl::SimpleAtoi(id, &token) || token < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--ids: \"", id, "\": want token ids, e.g. 1,2,3"));
    }
    context.push_back(token);
  }
  FORETOKEN_ASSIGN_OR_RETURN(const uint64_t memory,
                             ParseBytes("--index-memory", flags.index_memory));
  FORETOKEN_ASSIGN_OR_RETURN(const std::shared_ptr<CrestSource> source,
                             OpenCrestSource(flags.store, nullptr, memory));
  CrestTree tree;
  FORETOKEN_ASSIGN_OR_RETURN(const int n, source->Lookup(context, tree));
  return WriteJson({{"n", n},
                    {"tokens", tree.tokens},
                    {"parents", tree.parents},
                    {"counts", tree.counts}});
}

void AddBuild(Command crest) {
  const auto [command, flags] = crest.AddCommand<BuildFlags>(
      "build", "Count a corpus's n-grams and store their continuations", Build);
  CrestBuildOptions& options = flags.options;
  // The default is shown by --help, so it is set before the option is added.
  options.threads = AllProcessors();
  AddCorpusOptions(command, options.corpus);
  command.Add("--max-line", flags.max_line,
              "Maximum line length; longer lines are an error, or "
              "skipped with --skip-invalid");
  AddTokenizerOption(command, flags.tokenizer);
  command.Add("--max-n", flags.max_n, "n-grams of 1..N tokens")
      .InRange(1, kMaxCrestN);
  command.Add("--only-n", flags.only_n, "n-grams of N tokens only")
      .InRange(1, kMaxCrestN);
  command.Add("--top", options.top, "n-grams kept per length")
      .Required()
      .InRange(int64_t{1}, CrestBuildOptions::kMaxTop);
  command.Add("--tree-nodes", options.tree_nodes, "Maximum nodes per tree")
      .InRange(1, kMaxCrestNodes);
  command
      .Add("--max-matches", options.max_matches,
           "Continuations gathered per n-gram")
      .InRange(1, CrestBuildOptions::kMaxMatches);
  command.Add("--continuation", options.continuation, "Tokens per continuation")
      .InRange(1, CrestBuildOptions::kMaxContinuation);
  command
      .Add("--selection", flags.selection,
           "best: most frequent nodes; rest: REST's cut")
      .OneOf({"best", "rest"});
  command
      .Add("--sample", flags.sample,
           "Sample of an n-gram's matches, if there are more")
      .OneOf({"uniform", "first"});
  command.Add("--seed", options.seed, "Seed of the uniform sample")
      .NonNegative();
  command
      .Add("--min-count", options.min_count,
           "Drop n-grams that occur less often")
      .InRange(int64_t{1}, CrestBuildOptions::kMaxTop);
  command.Add("--memory", flags.memory, "Limit on resident memory, e.g. 1GiB");
  command.Add("--threads", options.threads, "Threads of the build")
      .InRange(1, ThreadPool::kMaxThreads);
  command.Add("--work", flags.work,
              "Folder for intermediate files, from which an "
              "interrupted build resumes");
  command.Add("--out", flags.out, "Snapshot file to write");
  command.Add("--name", flags.name,
              "Name to publish under in FORETOKEN_POSTGRES_URL");
  command
      .Add("--index", flags.index,
           "Index on the n-grams in PostgreSQL; default: btree")
      .OneOf({"btree", "hash"});
}

// `names`: "--store", or "--store,store" where its flag may be left out.
void AddStoreOption(const char* names, Command command, StoreFlags& flags) {
  command.Add(names, flags.store, "Snapshot file or name").Required();
}

absl::Status Stats(const StoreFlags& flags) {
  FORETOKEN_ASSIGN_OR_RETURN(const CrestMeta meta, ReadMeta(flags.store));
  return WriteJson(MetaJson(meta));
}

absl::Status Verify(const StoreFlags& flags) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (!flags.tokenizer.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(tokenizer, Tokenizer::Load(flags.tokenizer));
  }
  // Opening a store validates every record and checksum.
  // UINT64_MAX: into memory whole, whatever its size, since only then every
  // record is read.
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::shared_ptr<CrestSource> source,
      OpenCrestSource(flags.store, tokenizer.get(), UINT64_MAX));
  return WriteJson({{"ok", true},
                    {"entries", source->meta().entries},
                    {"nodes", source->meta().nodes}});
}

absl::Status List(const StoreFlags&) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json list, ListDatastores());
  return WriteJson(list);
}

absl::Status Drop(const StoreFlags& flags) {
  return DropDatastore(flags.store, flags.version);
}

}  // namespace

void AddCrestCommand(Command root) {
  const Command crest = root.AddGroup(
      "crest", "Datastores of n-grams and their continuation trees");
  AddBuild(crest);
#ifdef FORETOKEN_HAVE_SERVICES
  AddCrestIngestCommand(crest);
#endif
  const auto [lookup, lookup_flags] = crest.AddCommand<StoreFlags>(
      "lookup", "Show the token tree of token ids", Lookup);
  // No positional form: token ids would look like a second one.
  AddStoreOption("--store", lookup, lookup_flags);
  lookup.Add("--ids", lookup_flags.ids, "Token ids, e.g. 1,2,3").Required();
  lookup.Add("--index-memory", lookup_flags.index_memory,
             "Load a named datastore of up to this size into memory; "
             "query PostgreSQL for a larger one");
  const auto [stats, stats_flags] = crest.AddCommand<StoreFlags>(
      "stats", "Show a datastore's size and origin", Stats);
  AddStoreOption("--store,store", stats, stats_flags);
  const auto [verify, verify_flags] = crest.AddCommand<StoreFlags>(
      "verify", "Read a whole datastore and validate every record", Verify);
  AddStoreOption("--store,store", verify, verify_flags);
  verify.Add("--tokenizer", verify_flags.tokenizer,
             "Also check that it was built with this tokenizer");
  crest.AddCommand<StoreFlags>(
      "list", "List the versions in FORETOKEN_POSTGRES_URL as a JSON array",
      List);
  const auto [drop, drop_flags] = crest.AddCommand<StoreFlags>(
      "drop", "Remove a datastore, or one version of it, from PostgreSQL",
      Drop);
  drop.Add("--name,name", drop_flags.store, "Name").Required();
  drop.Add("--version", drop_flags.version, "Drop only this version")
      .Positive();
}

}  // namespace foretoken::cli
