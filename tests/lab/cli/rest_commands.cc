// foretoken-lab replay-rest and build-rest: REST as a baseline.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/drafting/corpus_reader.h"
#include "common/drafting/crest/snapshot_writer.h"
#include "common/speculation/mode_spec.h"
#include "common/text/tokenizer.h"
#include "tests/lab/cli/command.h"
#include "tests/lab/cli/rest_options.h"
#include "tests/lab/rest/rest_corpus.h"
#include "tests/lab/rest/rest_mode.h"
#include "tests/lab/rest/rest_snapshot.h"
#include "tools/cli/recorded_replay.h"
#include "tools/cli/shared_options.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

struct ReplayRestFlags {
  std::string tokenizer;
  std::string mode = kRestMode;
  RestStoreOptions store;
  RecordedReplay replay;
};

absl::Status ReplayRest(const ReplayRestFlags& flags) {
  FORETOKEN_ASSIGN_OR_RETURN(const ModeSpec spec, ModeSpec::Parse(flags.mode));
  if (spec.name() != kRestMode) {
    return absl::InvalidArgumentError(
        absl::StrCat("--mode ", flags.mode, ": want ", RestModeHelp()));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const RestOptions rest, ReadRestMode(spec));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                             Tokenizer::Load(flags.tokenizer));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Drafter> drafter,
                             MakeRestDrafter(rest, flags.store, *tokenizer));
  return ReplayRecorded(flags.replay, spec.ToString(), *drafter, {},
                        *tokenizer);
}

void AddReplayRest(Command root) {
  const auto [command, flags] = root.AddCommand<ReplayRestFlags>(
      "replay-rest",
      "Measure REST on recorded outputs, as `foretoken replay` measures modes",
      ReplayRest);
  AddRecordedOptions(command, flags.replay);
  AddTokenizerOption(command, flags.tokenizer);
  command.Add("--mode", flags.mode, RestModeHelp());
  AddTreeNodesOption(command, flags.replay.max_tree_nodes);
  AddRestCorpusOptions(command, flags.store);
  const Option snapshot =
      command.Add("--rest", flags.store.snapshot,
                  "REST snapshot (build-rest), in place of a corpus");
  snapshot.Excludes(command.Get("--rest-corpus"));
  snapshot.Excludes(command.Get("--exclude-ids"));
}

struct BuildRestFlags {
  CorpusOptions corpus;
  std::string tokenizer;
  std::string out;
};

absl::Status BuildRest(const BuildRestFlags& flags) {
  // Better to fail here than after reading the corpus.
  FORETOKEN_RETURN_IF_ERROR(SnapshotWriter::CheckTarget(flags.out));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                             Tokenizer::Load(flags.tokenizer));
  FORETOKEN_ASSIGN_OR_RETURN(const RestCorpus corpus,
                             ReadRestCorpus(flags.corpus, *tokenizer));
  RestMeta meta;
  meta.tokenizer_fingerprint = tokenizer->fingerprint();
  meta.vocab_size = static_cast<uint32_t>(tokenizer->vocab_size());
  meta.documents = static_cast<uint64_t>(corpus.documents);
  FORETOKEN_ASSIGN_OR_RETURN(meta,
                             WriteRestSnapshot(flags.out, meta, corpus.tokens));
  return WriteJson(
      {{"tokenizer_fingerprint", HexDigest(meta.tokenizer_fingerprint)},
       {"vocab_size", meta.vocab_size},
       {"corpus_documents", meta.documents},
       {"corpus_tokens", meta.tokens},
       {"bytes", meta.file_bytes()},
       {"memory_bytes", meta.store_bytes()}});
}

void AddBuildRest(Command root) {
  const auto [command, flags] = root.AddCommand<BuildRestFlags>(
      "build-rest",
      "Store a corpus's tokens as a REST snapshot, for replay-rest --rest and "
      "foretoken-lab-crest --rest",
      BuildRest);
  AddCorpusOptions(command, flags.corpus);
  AddTokenizerOption(command, flags.tokenizer);
  command.Add("--out", flags.out, "REST snapshot to write").Required();
}

}  // namespace

void AddRestCommands(Command root) {
  AddReplayRest(root);
  AddBuildRest(root);
}

}  // namespace foretoken::cli
