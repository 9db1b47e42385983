#include "tests/lab/cli/rest_options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"
#include "tests/lab/rest/rest_corpus.h"
#include "tests/lab/rest/rest_drafter.h"
#include "tests/lab/rest/rest_snapshot.h"

namespace foretoken::cli {
namespace {

absl::StatusOr<std::shared_ptr<const RestStore>> ReadSnapshot(
    const std::string& path, const Tokenizer& tokenizer) {
  FORETOKEN_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
  RestMeta meta;
  absl::StatusOr<RestStore> store = DecodeRestSnapshot(std::move(bytes), meta);
  if (!store.ok()) return Annotate(store.status(), path);
  if (meta.tokenizer_fingerprint != tokenizer.fingerprint()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": was built with another tokenizer"));
  }
  return std::make_shared<const RestStore>(*std::move(store));
}

}  // namespace

void AddRestCorpusOptions(Command command, RestStoreOptions& options) {
  command.Add("--rest-corpus", options.corpus,
              "Corpus for mode rest: JSONL, text files or folders");
  command.Add("--exclude-ids", options.exclude_ids,
              "JSONL files; rows of the REST corpus with one of their "
              "ids are left out");
}

absl::StatusOr<std::unique_ptr<Drafter>> MakeRestDrafter(
    const RestOptions& rest, const RestStoreOptions& options,
    const Tokenizer& tokenizer) {
  std::shared_ptr<const RestStore> store;
  if (!options.snapshot.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(store,
                               ReadSnapshot(options.snapshot, tokenizer));
  } else if (!options.corpus.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        store, BuildRestStore(options.corpus, options.exclude_ids, tokenizer));
  } else {
    return absl::FailedPreconditionError(
        "mode 'rest': no REST datastore was given");
  }
  return std::make_unique<RestDrafter>(std::move(store), rest);
}

}  // namespace foretoken::cli
