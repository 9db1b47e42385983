// foretoken prior grow: has the target write, many requests at once, and builds
// a static prior of what it wrote: its own habits, which no other corpus has.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/progress_bar.h"
#include "common/base/status_macros.h"
#include "common/drafting/ngram_counts.h"
#include "common/drafting/prior_corpus.h"
#include "tools/cli/command.h"
#include "tools/cli/generate_flags.h"
#include "tools/cli/generation_target.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/local_generator.h"
#include "tools/cli/prior_growth/prior_growth.h"
#include "tools/cli/prior_growth/written_text.h"
#include "tools/cli/prior_output.h"
#include "tools/cli/prompt_file.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {
namespace {

constexpr absl::Duration kInfoTimeout = absl::Seconds(10);
constexpr int kIdlePriority = 19;  // the nicest a process can be

struct Flags {
  RequestFlags target;  // server, access, token, tokenizer and model alone
  std::string prompts;
  std::string chat = "none";
  double minutes = 5;
  int concurrency = 32;
  int64_t max_tokens = 256;
  double temperature = 0;
  std::string mode = "off";
  uint64_t seed = 1;
  int64_t max_written = int64_t{1} << 24;
  std::vector<std::string> merge;
  std::string text_out;
  PriorOutputFlags output;
};

// The target, open, and what a prior for it must know.
struct OpenTarget {
  std::shared_ptr<Generator> generator;
  PriorBuildOptions model;                     // vocabulary and fingerprint
  std::shared_ptr<const Tokenizer> tokenizer;  // null: not needed
};

absl::StatusOr<OpenTarget> OpenServer(const Flags& flags) {
  OpenTarget target;
  FORETOKEN_ASSIGN_OR_RETURN(target.generator, ConnectToServer(flags.target));
  const auto info = target.generator->Info(MonotonicNow() + kInfoTimeout);
  FORETOKEN_RETURN_IF_ERROR(Annotate(info.status(), flags.target.server));
  target.model.vocab_size = static_cast<int32_t>(info->vocab_size);
  const std::string& fingerprint = info->tokenizer_fingerprint;
  // A prior is bound to its tokenizer by this hash; without one a drafter could
  // not tell whether its ids are right.
  if (fingerprint.size() != target.model.tokenizer.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(flags.target.server,
                     ": it serves a model without a tokenizer, which a prior "
                     "cannot be bound to"));
  }
  std::copy(fingerprint.begin(), fingerprint.end(),
            target.model.tokenizer.begin());
  if (!flags.target.tokenizer.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(target.tokenizer,
                               Tokenizer::LoadShared(flags.target.tokenizer));
    // Text of --merge would be counted under ids of another vocabulary.
    if (target.tokenizer->fingerprint() != target.model.tokenizer) {
      return absl::FailedPreconditionError(
          absl::StrCat("--tokenizer: ", flags.target.tokenizer,
                       " is not that of ", flags.target.server));
    }
  }
  return target;
}

absl::StatusOr<OpenTarget> OpenModel(const Flags& flags) {
  OpenTarget target;
  FORETOKEN_ASSIGN_OR_RETURN(target.tokenizer,
                             Tokenizer::LoadShared(flags.target.backend.model));
  target.model.vocab_size = target.tokenizer->vocab_size();
  target.model.tokenizer = target.tokenizer->fingerprint();
  // The threads of the engine, which do not exist yet, inherit it.
  if (setpriority(PRIO_PROCESS, 0, kIdlePriority) != 0) {
    FORETOKEN_LOG(kWarning, "the priority of the process stays as it is");
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      target.generator,
      StartLocalGenerator(flags.target, /*tokens=*/0, flags.concurrency,
                          target.tokenizer));
  return target;
}

absl::Status CheckFlags(const Flags& flags) {
  const bool server = !flags.target.server.empty();
  if (server == !flags.target.backend.model.empty()) {
    return absl::InvalidArgumentError("want --server ADDR or --model PATH");
  }
  // Only text has to be tokenized; the target's own outputs come as ids.
  if (server && flags.target.tokenizer.empty() && !flags.merge.empty()) {
    return absl::InvalidArgumentError(
        "--merge: wants --tokenizer with --server: the model directory or GGUF "
        "file of the server's model");
  }
  if (!server && !flags.target.tokenizer.empty()) {
    return absl::InvalidArgumentError(
        "--tokenizer: a model has its own, want this flag only with --server");
  }
  return absl::OkStatus();
}

// Runs the growth until it ends or the user interrupts it.
absl::Status RunGrowth(PriorGrowth& growth) {
  constexpr absl::Duration kPoll = absl::Milliseconds(50);
  std::atomic<bool> over{false};
  std::thread watch([&] {
    // Polled by a thread of its own, because a signal handler cannot call Stop,
    // which takes a lock.
    while (!over && !Interrupted()) absl::SleepFor(kPoll);
    growth.Stop();
  });
  // On every path out of here: a thread that is not joined ends the program.
  const absl::Cleanup join = [&] {
    over = true;
    watch.join();
  };
  Progress bar("prior: write", 0, "tokens", isatty(STDERR_FILENO) != 0);
  return growth.Run([&](int64_t tokens) { bar.Set(tokens); });
}

std::string RandomScope() {
  std::random_device device;
  return absl::StrFormat("prior-grow-%08x%08x", device(), device());
}

// Null without --merge.
absl::StatusOr<std::unique_ptr<CorpusReader>> OpenMerged(const Flags& flags) {
  if (flags.merge.empty()) return nullptr;
  CorpusOptions source;
  source.paths = flags.merge;
  return CorpusReader::Open(std::move(source));
}

absl::StatusOr<GrowthOptions> OptionsOf(const Flags& flags) {
  GrowthOptions options;
  FORETOKEN_ASSIGN_OR_RETURN(options.mode, Mode::Parse(flags.mode));
  options.time = absl::Minutes(flags.minutes);
  options.concurrency = flags.concurrency;
  options.max_tokens = flags.max_tokens;
  options.temperature = static_cast<float>(flags.temperature);
  options.seed = flags.seed;
  options.cache_scope = RandomScope();
  return options;
}

absl::Status Grow(const Flags& flags) {
  FORETOKEN_RETURN_IF_ERROR(CheckFlags(flags));
  FORETOKEN_ASSIGN_OR_RETURN(const GrowthOptions options, OptionsOf(flags));
  FORETOKEN_ASSIGN_OR_RETURN(
      const ChatFormat chat,
      ChatFormat::Open(flags.chat,
                       ModelOfChat(flags.target, flags.target.tokenizer)));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<FilePrompt> prompts,
                             ReadPromptFile(flags.prompts, chat));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<CorpusReader> merged,
                             OpenMerged(flags));
  // Bounds the memory of the corpus.
  WrittenText written(flags.max_written);
  if (!flags.text_out.empty()) {
    FORETOKEN_RETURN_IF_ERROR(written.WriteRows(flags.text_out));
  }
  std::vector<TokenId> corpus;
  PriorBuildOptions model;
  std::shared_ptr<const Tokenizer> tokenizer;
  int64_t refused = 0;
  {
    FORETOKEN_ASSIGN_OR_RETURN(OpenTarget target, flags.target.server.empty()
                                                      ? OpenModel(flags)
                                                      : OpenServer(flags));
    model = target.model;
    // Before hours of writing: it builds a tiny prior with the same options.
    FORETOKEN_RETURN_IF_ERROR(CheckPriorOutput(model, flags.output));
    PriorGrowth growth(options, prompts, *target.generator, written);
    CatchInterrupt();
    FORETOKEN_RETURN_IF_ERROR(RunGrowth(growth));
    corpus = written.TakeCorpus();
    refused = growth.refused();
    tokenizer = target.tokenizer;
  }  // the model's memory is free before the n-grams need theirs
  if (merged != nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::vector<TokenId> added,
                               TokenisePriorCorpus(*merged, *tokenizer));
    corpus.insert(corpus.end(), added.begin(), added.end());
  }
  FORETOKEN_RETURN_IF_ERROR(WritePrior(
      corpus, model, flags.output,
      absl::StrFormat("%d outputs of %d tokens, %d requests refused, and %d "
                      "documents of corpora",
                      written.outputs(), written.tokens(), refused,
                      merged == nullptr ? 0 : merged->documents())));
  // The rows come last: a prior that is written is worth more than a complaint
  // about them.
  return written.Finish();
}

void AddTargetFlags(Command grow, Flags& flags) {
  RequestFlags& target = flags.target;
  grow.Add("--server", target.server,
           "Address of an orchestrator: HOST:PORT or unix:/PATH. Give "
           "this account weight=0.01 in the server's token file, so "
           "that others go first");
  AddServerFlags(grow, target.server_access);
  grow.Add("--server-token-file", target.server_token_file,
           "File with the bearer token to send");
  grow.Add("--model", target.backend.model,
           "Model directory or GGUF file, to run in this process at "
           "idle priority");
  AddBackendOptions(grow, target.backend);
}

void AddWritingFlags(Command grow, Flags& flags) {
  grow.Add("--prompts", flags.prompts,
           "JSONL: rows with `prompt`, `prompt_ids` or `messages`; like "
           "those that the server will see")
      .Required();
  AddChatOption(grow, flags.chat);
  grow.Add("--minutes", flags.minutes,
           "Time to write; Ctrl-C ends it early, and the prior is "
           "built of what there is")
      .InRange(0.001, 60.0 * 24 * 7);
  // Half of the limit of a corpus leaves room for --merge.
  grow.Add("--max-written", flags.max_written,
           "Tokens after which the writing ends")
      .InRange(int64_t{1}, kMaxPriorCorpusTokens / 2);
  grow.Add("--concurrency", flags.concurrency, "Requests at once")
      .InRange(1, 256);
  grow.Add("--max-tokens", flags.max_tokens, "Maximum tokens of an output")
      .InRange(int64_t{1}, int64_t{1} << 20);
  grow.Add("--temperature", flags.temperature,
           "0: greedy, each prompt once; above 0 the prompts begin "
           "again with other seeds")
      .InRange(0.0, 100.0);
  grow.Add("--seed", flags.seed, "Seed of the first request");
  grow.Add(
      "--mode", flags.mode,
      "MODE[:key=value,...] to write with: " + ModeHelp(ModeUse::kRequest));
}

}  // namespace

void AddPriorGrowCommand(Command prior) {
  const auto [grow, flags] = prior.AddCommand<Flags>(
      "grow", "Build a prior of what the target itself writes on your prompts",
      Grow);
  AddTargetFlags(grow, flags);
  AddWritingFlags(grow, flags);
  grow.Add("--merge", flags.merge,
           "Corpora to count as well, as in `prior build`, such as the "
           "--text-out of an earlier run");
  grow.Add("--tokenizer", flags.target.tokenizer,
           "The server's model or tokenizer, for --merge and for "
           "--chat auto");
  grow.Add("--text-out", flags.text_out,
           "Also write the outputs as JSONL: a corpus of `prior build` "
           "and `crest build`");
  AddPriorOutputFlags(grow, flags.output);
}

}  // namespace foretoken::cli
