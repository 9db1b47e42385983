// Options that several commands share.
#ifndef FORETOKEN_TOOLS_CLI_SHARED_OPTIONS_H_
#define FORETOKEN_TOOLS_CLI_SHARED_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/drafting/corpus_reader.h"
#include "common/drafting/drafter_factory.h"
#include "common/infer/factory/backend_factory.h"
#include "common/infer/factory/draft_loading.h"
#include "common/text/tokenizer.h"
#include "tools/cli/app.h"

namespace foretoken::cli {

// --tokenizer, required.
void AddTokenizerOption(Command command, std::string& path);

// --random: the shape of a model with random weights.
Option AddRandomOption(Command command, std::string& shape);

// --weights: the type of its weights.
void AddRandomWeightsOption(Command command, std::string& type);

// Number of processors of this machine; at least 1.
int AllProcessors();

// --backend --device --precision --isa --kv-type --threads.
void AddBackendOptions(Command command, BackendOptions& backend);

// --corpus, required, --exclude-ids --suffix --skip-invalid.
void AddCorpusOptions(Command command, CorpusOptions& corpus);

// A model in this process and what drafts for it.
struct LocalModelFlags {
  BackendOptions backend;  // including the model to run
  std::string draft_model;
  DraftLoading draft_loading;
  std::string prior;
  std::string crest;
  bool trace = false;  // no flag of every command
};

// --draft-weights --draft-vocabulary.
void AddDraftLoadingOptions(Command command, DraftLoading& loading);

// --model --draft-model --draft-weights --draft-vocabulary --prior --crest; the
// backend's are others.
void AddLocalModelFlags(Command command, LocalModelFlags& flags);

// InvalidArgument if one of `flags` is given that a server decides itself.
absl::Status CheckNoLocalModel(const LocalModelFlags& flags);

// --chat: how the messages of a prompt are rendered; see ChatFormat.
Option AddChatOption(Command command, std::string& chat);
// --tokenizer: the server's, where this process needs it too.
void AddServerTokenizerOption(Command command, std::string& path);
// Where the chat template of --chat auto is: the model in this process, or the
// server's that --tokenizer names; empty: not given.
const std::string& ModelOfChat(const LocalModelFlags& flags,
                               const std::string& tokenizer);

// How to reach a server.
struct ServerFlags {
  std::string tls_ca;  // PEM roots; enables TLS
  std::string tls_cert;
  std::string tls_key;
  std::string tls_name;
  bool insecure = false;
};

// A server of the network.
struct RemoteServerFlags {
  std::string server;  // its address; empty: none
  ServerFlags server_access;
  std::string server_token_file;
};

// Adds --server-tls-ca and so on. The other TLS flags require a CA.
void AddServerFlags(Command command, ServerFlags& flags);

// The drafter of a replay.
struct DrafterOptions {
  std::string tokenizer;
  std::string mode;
  std::string prior;
  std::string crest;
  std::string index_memory;  // empty: kDefaultIndexMemory
  std::string state = "cold";
  int max_tree_nodes = 64;

  bool online() const { return state == "online"; }
};

// --max-tree-nodes.
void AddTreeNodesOption(Command command, int& max_tree_nodes);

// --tokenizer --mode --prior --crest --index-memory --state --max-tree-nodes.
// `modes`: those of the command besides replay's.
void AddDrafterOptions(Command command, DrafterOptions& options,
                       const std::string& modes = "");

// A flag, and the modes that use it.
struct FlagUse {
  const char* flag;
  bool given;
  std::vector<absl::string_view> modes;
};

// InvalidArgument for a flag of `options` or `others` that was given but that
// `mode` ignores: it would not measure what was asked.
absl::Status CheckFlagsOfMode(absl::string_view mode,
                              const DrafterOptions& options,
                              const std::vector<FlagUse>& others);

// Opens the files that the options name.
absl::StatusOr<DrafterResources> OpenDrafterResources(
    const DrafterOptions& options, const Tokenizer& tokenizer);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_SHARED_OPTIONS_H_
