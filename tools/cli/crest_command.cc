// foretoken crest: build, inspect and look up CREST datastores.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
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
  std::string work;
};

absl::Status PrintJson(const Json& value) {
  const std::string text = DumpJson(value) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0) {
    return absl::DataLossError("stdout: cannot write");
  }
  return absl::OkStatus();
}

Json MetaJson(const CrestMeta& meta) {
  Json levels = Json::array();
  for (uint32_t n = meta.min_n; n <= meta.max_n; ++n) {
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
  if ((flags.max_n > 0) == (flags.only_n > 0)) {
    return absl::InvalidArgumentError("want one of --max-n and --only-n");
  }
  options.max_n = flags.max_n > 0 ? flags.max_n : flags.only_n;
  options.min_n = flags.max_n > 0 ? 1 : flags.only_n;
  options.selection =
      flags.selection == "rest" ? TreeSelection::kRest : TreeSelection::kBest;
  options.sample =
      flags.sample == "first" ? MatchSample::kFirst : MatchSample::kUniform;
  absl::StatusOr<uint64_t> memory = ParseBytes(flags.memory);
  if (!memory.ok()) return Annotate(memory.status(), "--memory");
  options.memory_bytes = *memory;
  absl::StatusOr<uint64_t> max_line = ParseBytes(flags.max_line);
  if (!max_line.ok()) return Annotate(max_line.status(), "--max-line");
  options.corpus.max_line_bytes = *max_line;
  std::error_code error;
  const std::filesystem::path scratch =
      std::filesystem::temp_directory_path(error);
  if (error) {
    return absl::FailedPreconditionError(
        "no folder for temporary files: pass --work, or set TMPDIR");
  }
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
                   return OpenSink(flags.out, flags.name, meta, table);
                 }));
  return PrintJson(ReportJson(report));
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
                             ParseBytes(flags.index_memory));
  FORETOKEN_ASSIGN_OR_RETURN(const std::shared_ptr<CrestSource> source,
                             OpenCrestSource(flags.store, nullptr, memory));
  CrestTree tree;
  FORETOKEN_ASSIGN_OR_RETURN(const int n, source->Lookup(context, tree));
  return PrintJson({{"n", n},
                    {"tokens", tree.tokens},
                    {"parents", tree.parents},
                    {"counts", tree.counts}});
}

void AddBuild(CLI::App& crest, Run& run) {
  CLI::App* command = crest.add_subcommand(
      "build", "Count a corpus's n-grams and store their continuations");
  const auto flags = std::make_shared<BuildFlags>();
  CrestBuildOptions& options = flags->options;
  options.threads =
      static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  command
      ->add_option("--corpus", options.corpus.paths,
                   "JSONL (fields output, text, prompt), text files, folders "
                   "of sources; gzip or plain")
      ->required();
  command->add_option("--exclude-ids", options.corpus.exclude_id_files,
                      "JSONL files; corpus rows with one of their ids are "
                      "left out");
  command->add_option("--suffix", options.corpus.suffixes,
                      "Suffixes of the files taken from folders");
  command->add_flag("--skip-invalid", options.corpus.skip_invalid,
                    "Skip and count invalid input: documents that are not "
                    "UTF-8 or JSON, and the rest of a damaged gzip file");
  command
      ->add_option("--max-line", flags->max_line,
                   "Maximum line length; longer lines are an error, or skipped "
                   "with --skip-invalid")
      ->capture_default_str();
  command
      ->add_option("--tokenizer", flags->tokenizer,
                   "tokenizer.json, tokenizer.model or a model directory")
      ->required();
  command->add_option("--max-n", flags->max_n, "n-grams of 1..N tokens")
      ->check(CLI::Range(1, kMaxCrestN));
  command->add_option("--only-n", flags->only_n, "n-grams of N tokens only")
      ->check(CLI::Range(1, kMaxCrestN));
  command->add_option("--top", options.top, "n-grams kept per length")
      ->required()
      ->check(CLI::Range(int64_t{1}, CrestBuildOptions::kMaxTop));
  command
      ->add_option("--tree-nodes", options.tree_nodes, "Maximum nodes per tree")
      ->check(CLI::Range(1, kMaxCrestNodes))
      ->capture_default_str();
  command
      ->add_option("--max-matches", options.max_matches,
                   "Continuations gathered per n-gram")
      ->check(CLI::Range(1, CrestBuildOptions::kMaxMatches))
      ->capture_default_str();
  command
      ->add_option("--continuation", options.continuation,
                   "Tokens per continuation")
      ->check(CLI::Range(1, CrestBuildOptions::kMaxContinuation))
      ->capture_default_str();
  command
      ->add_option("--selection", flags->selection,
                   "best: most frequent nodes; rest: REST's cut")
      ->check(CLI::IsMember({"best", "rest"}))
      ->capture_default_str();
  command
      ->add_option("--sample", flags->sample,
                   "Sample of an n-gram's matches, if there are more")
      ->check(CLI::IsMember({"uniform", "first"}))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Seed of the uniform sample")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--min-count", options.min_count,
                   "Drop n-grams that occur less often")
      ->check(CLI::Range(int64_t{1}, CrestBuildOptions::kMaxTop))
      ->capture_default_str();
  command
      ->add_option("--memory", flags->memory,
                   "Limit on resident memory, e.g. 1GiB")
      ->capture_default_str();
  command->add_option("--threads", options.threads, "Default: all cores")
      ->check(CLI::Range(1, ThreadPool::kMaxThreads));
  command->add_option("--work", flags->work,
                      "Folder for intermediate files, from which an "
                      "interrupted build resumes");
  command->add_option("--out", flags->out, "Snapshot file to write");
  command->add_option("--name", flags->name,
                      "Name to publish under in FORETOKEN_POSTGRES_URL");
  command->callback([flags, &run] { run = [flags] { return Build(*flags); }; });
}

void AddLookup(CLI::App& crest, Run& run) {
  CLI::App* command =
      crest.add_subcommand("lookup", "Show the token tree of token ids");
  const auto flags = std::make_shared<StoreFlags>();
  command->add_option("--store", flags->store, "Snapshot file or name")
      ->required();
  command->add_option("--ids", flags->ids, "Token ids, e.g. 1,2,3")->required();
  command
      ->add_option("--index-memory", flags->index_memory,
                   "Load a named datastore of up to this size into memory; "
                   "query PostgreSQL for a larger one")
      ->capture_default_str();
  command->callback(
      [flags, &run] { run = [flags] { return Lookup(*flags); }; });
}

absl::Status Stats(const StoreFlags& flags) {
  FORETOKEN_ASSIGN_OR_RETURN(const CrestMeta meta, ReadMeta(flags.store));
  return PrintJson(MetaJson(meta));
}

absl::Status Verify(const StoreFlags& flags) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (!flags.tokenizer.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(tokenizer, Tokenizer::Load(flags.tokenizer));
  }
  // Opening a store validates every record and checksum.
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::shared_ptr<CrestSource> source,
      OpenCrestSource(flags.store, tokenizer.get(), UINT64_MAX));
  return PrintJson({{"ok", true},
                    {"entries", source->meta().entries},
                    {"nodes", source->meta().nodes}});
}

void AddStats(CLI::App& crest, Run& run) {
  CLI::App* command =
      crest.add_subcommand("stats", "Show how a datastore was built, its size");
  const auto flags = std::make_shared<StoreFlags>();
  command->add_option("--store,store", flags->store, "Snapshot file or name")
      ->required();
  command->callback([flags, &run] { run = [flags] { return Stats(*flags); }; });
}

void AddVerify(CLI::App& crest, Run& run) {
  CLI::App* command = crest.add_subcommand(
      "verify", "Read a whole datastore and validate every record");
  const auto flags = std::make_shared<StoreFlags>();
  command->add_option("--store,store", flags->store, "Snapshot file or name")
      ->required();
  command->add_option("--tokenizer", flags->tokenizer,
                      "Also check that it was built with this tokenizer");
  command->callback(
      [flags, &run] { run = [flags] { return Verify(*flags); }; });
}

void AddList(CLI::App& crest, Run& run) {
  CLI::App* command = crest.add_subcommand(
      "list", "List the versions in FORETOKEN_POSTGRES_URL as a JSON array");
  command->callback([&run] {
    run = []() -> absl::Status {
      FORETOKEN_ASSIGN_OR_RETURN(const Json list, ListDatastores());
      return PrintJson(list);
    };
  });
}

void AddDrop(CLI::App& crest, Run& run) {
  CLI::App* command = crest.add_subcommand(
      "drop", "Remove a datastore, or one version of it, from PostgreSQL");
  const auto flags = std::make_shared<StoreFlags>();
  command->add_option("--name,name", flags->store, "Name")->required();
  command->add_option("--version", flags->version, "Drop only this version")
      ->check(CLI::PositiveNumber);
  command->callback([flags, &run] {
    run = [flags] { return DropDatastore(flags->store, flags->version); };
  });
}

}  // namespace

void AddCrestCommand(CLI::App& app, Run& run) {
  CLI::App* crest = app.add_subcommand(
      "crest", "Datastores of n-grams and their continuation trees");
  crest->require_subcommand(1);
  AddBuild(*crest, run);
  AddLookup(*crest, run);
  AddStats(*crest, run);
  AddVerify(*crest, run);
  AddList(*crest, run);
  AddDrop(*crest, run);
}

}  // namespace foretoken::cli
