#include "tools/cli/shared_options.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/drafting/static_prior.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/cpu/kv_type.h"
#include "common/infer/factory/named_shapes.h"
#include "common/infer/weight_conversion.h"
#include "common/speculation/modes.h"
#include "tools/cli/crest_stores.h"

namespace foretoken::cli {

void AddTokenizerOption(Command command, std::string& path) {
  command
      .Add("--tokenizer", path,
           "Model directory, GGUF file, tokenizer.json[.gz] or "
           "tokenizer.model")
      .Required();
}

Option AddRandomOption(Command command, std::string& shape) {
  return command.Add(
      "--random", shape,
      absl::StrCat("Shape of a model with random weights: ", NamedShapeList(),
                   ", or d_model=2048,layers=12,heads=32,kv_heads=4,d_ff=5632,"
                   "vocab=32000"));
}

void AddRandomWeightsOption(Command command, std::string& type) {
  command.Add("--weights", type,
              "Type of the random weights, such as bf16, q8_0, q4_0 or "
              "q4_k; by default that of --precision");
}

int AllProcessors() {
  // hardware_concurrency may be 0 where the system does not tell.
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void AddBackendOptions(Command command, BackendOptions& backend) {
  command.Add("--backend", backend.backend, "auto, cpu or cuda")
      .OneOf({"auto", "cpu", "cuda"});
  command.Add("--device", backend.device, "Index of the GPU").InRange(0, 1023);
  command.Add("--precision", backend.precision, "fp32 or bf16")
      .OneOf({"fp32", "bf16"});
  command
      .Add("--isa", backend.isa,
           absl::StrCat("Instruction set of the CPU engine: ",
                        absl::StrJoin(CpuIsaChoices(), ", ")))
      .OneOf(CpuIsaChoices());
  command
      .Add("--kv-type", backend.kv_type,
           absl::StrCat("Type of the KV cache of the CPU engine: ",
                        absl::StrJoin(KvTypeChoices(), ", "),
                        "; auto: that of --precision"))
      .OneOf(KvTypeChoices());
  command.Add("--threads", backend.threads, "0: all processors")
      .InRange(0, ThreadPool::kMaxThreads);
}

void AddCorpusOptions(Command command, CorpusOptions& corpus) {
  command
      .Add("--corpus", corpus.paths,
           "JSONL (fields output, text, prompt), text files, folders "
           "of sources; gzip or plain")
      .Required();
  command.Add("--exclude-ids", corpus.exclude_id_files,
              "JSONL files; corpus rows with one of their ids are "
              "left out");
  command.Add("--suffix", corpus.suffixes,
              "Suffixes of the files taken from folders");
  command.AddFlag("--skip-invalid", corpus.skip_invalid,
                  "Skip and count invalid input: documents that are not "
                  "UTF-8 or JSON, and the rest of a damaged gzip file");
}

void AddDraftLoadingOptions(Command command, DraftLoading& loading) {
  command
      .Add(absl::StrCat("--", DraftLoading::kWeightsFlag), loading.weights,
           DraftLoading::kWeightsHelp)
      .OneOf(WeightConversionChoices());
  command
      .Add(absl::StrCat("--", DraftLoading::kVocabularyFlag),
           loading.vocabulary, DraftLoading::kVocabularyHelp)
      .InRange(0, DraftLoading::kMaxVocabulary);
}

void AddLocalModelFlags(Command command, LocalModelFlags& flags) {
  command.Add("--model", flags.backend.model,
              "Hugging Face directory or GGUF file");
  command.Add("--draft-model", flags.draft_model,
              "Draft model with the same vocabulary, likewise");
  AddDraftLoadingOptions(command, flags.draft_loading);
  command.Add("--prior", flags.prior,
              "Prior of the trie drafter (foretoken prior build)");
  command.Add("--crest", flags.crest,
              "Snapshot of a CREST datastore (foretoken crest build)");
}

Option AddChatOption(Command command, std::string& chat) {
  return command
      .Add("--chat", chat,
           "Rendering of messages: auto, by the model's chat template; "
           "chatml; or none")
      .OneOf({"none", "chatml", "auto"});
}

void AddServerTokenizerOption(Command command, std::string& path) {
  command.Add("--tokenizer", path,
              "With --server: model directory or GGUF file with the "
              "tokenizer and chat template of its model");
}

const std::string& ModelOfChat(const LocalModelFlags& flags,
                               const std::string& tokenizer) {
  return flags.backend.model.empty() ? tokenizer : flags.backend.model;
}

absl::Status CheckNoLocalModel(const LocalModelFlags& flags) {
  // --draft-vocabulary is a number with a default, so it counts as given if it
  // differs.
  const bool cuts = flags.draft_loading.vocabulary != DraftLoading().vocabulary;
  for (const auto& [name, value] :
       {std::pair("--draft-vocabulary", std::string(cuts ? "given" : "")),
        std::pair("--draft-model", flags.draft_model),
        std::pair("--draft-weights", flags.draft_loading.weights),
        std::pair("--prior", flags.prior), std::pair("--crest", flags.crest),
        std::pair("--isa", flags.backend.isa),
        std::pair("--kv-type", flags.backend.kv_type)}) {
    // "auto" is what these flags say without being given.
    if (value.empty() || value == "auto") continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name,
        ": a server uses its own configuration, want this flag only with a "
        "model in this process"));
  }
  return absl::OkStatus();
}

void AddTreeNodesOption(Command command, int& max_tree_nodes) {
  command
      .Add("--max-tree-nodes", max_tree_nodes, "Maximum draft nodes per round")
      .InRange(1, 1024);
}

void AddDrafterOptions(Command command, DrafterOptions& options,
                       const std::string& modes) {
  AddTokenizerOption(command, options.tokenizer);
  command
      .Add("--mode", options.mode,
           absl::StrCat(modes,
                        "MODE[:key=value,...]: ", ModeHelp(ModeUse::kReplay)))
      .Required();
  AddTreeNodesOption(command, options.max_tree_nodes);
  command
      .Add("--state", options.state,
           "cold: drop all state between turns; online: keep it from "
           "turn to turn of a set")
      .OneOf({"cold", "online"});
  command.Add("--prior", options.prior,
              "Static prior for mode auto (foretoken prior build)");
  command.Add("--crest", options.crest,
              "CREST datastore for mode crest, and for auto where "
              "trees are priced: snapshot file or name");
  command.Add("--index-memory", options.index_memory,
              "Load a named CREST datastore of up to this size into "
              "memory (default 1GiB); query PostgreSQL for a larger "
              "one");
}

void AddServerFlags(Command command, ServerFlags& flags) {
  const Option ca =
      command
          .Add("--server-tls-ca", flags.tls_ca,
               "PEM roots for the server's certificate; enables TLS")
          .Environment("FORETOKEN_SERVER_TLS_CA");
  const Option cert =
      command
          .Add("--server-tls-cert", flags.tls_cert,
               "PEM client certificate, if the server requires one")
          .Environment("FORETOKEN_SERVER_TLS_CERT");
  const Option key =
      command
          .Add("--server-tls-key", flags.tls_key, "PEM key of that certificate")
          .Environment("FORETOKEN_SERVER_TLS_KEY");
  // A certificate is useless without its key, and both without TLS.
  cert.Needs(key).Needs(ca);
  key.Needs(cert);
  command
      .Add("--server-tls-name", flags.tls_name,
           "Name in the server's certificate, if not its address")
      .Needs(ca);
  command.AddFlag("--server-insecure", flags.insecure,
                  "Allow a remote server without TLS");
}

absl::Status CheckFlagsOfMode(absl::string_view mode,
                              const DrafterOptions& options,
                              const std::vector<FlagUse>& others) {
  std::vector<FlagUse> uses = {
      {"--prior", !options.prior.empty(), {"auto"}},
      // Only these drafters have state that outlives a request.
      {"--state online", options.online(), {"auto", "phrase_pool"}},
      {"--crest", !options.crest.empty(), {"crest"}},
      {"--index-memory", !options.index_memory.empty(), {"crest"}}};
  // The flags of the calling command go through the same test.
  uses.insert(uses.end(), others.begin(), others.end());
  for (const FlagUse& use : uses) {
    if (!use.given || absl::c_linear_search(use.modes, mode)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(use.flag, ": mode \"", mode, "\" has no use for it, only ",
                     absl::StrJoin(use.modes, " and ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<DrafterResources> OpenDrafterResources(
    const DrafterOptions& options, const Tokenizer& tokenizer) {
  DrafterResources resources;
  // Without --state online a drafter forgets between turns, as a replica would
  // that has just started.
  resources.keep_history = options.online();
  if (!options.prior.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        resources.prior,
        StaticPrior::Open(options.prior, tokenizer.fingerprint()));
  }
  if (!options.crest.empty()) {
    uint64_t memory = kDefaultIndexMemory;
    if (!options.index_memory.empty()) {
      FORETOKEN_ASSIGN_OR_RETURN(
          memory, ParseBytes("--index-memory", options.index_memory));
    }
    FORETOKEN_ASSIGN_OR_RETURN(
        resources.crest, OpenCrestSource(options.crest, &tokenizer, memory));
  }
  return resources;
}

}  // namespace foretoken::cli
