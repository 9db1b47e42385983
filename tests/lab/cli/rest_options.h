// REST's datastore on the command line: the text of a corpus, or a snapshot.
#ifndef FORETOKEN_TESTS_LAB_CLI_REST_OPTIONS_H_
#define FORETOKEN_TESTS_LAB_CLI_REST_OPTIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/drafting/drafter.h"
#include "common/text/tokenizer.h"
#include "tests/lab/rest/rest_lookup.h"
#include "tools/cli/app.h"

namespace foretoken::cli {

struct RestStoreOptions {
  std::vector<std::string> corpus;
  std::vector<std::string> exclude_ids;  // files
  std::string snapshot;
};

// --rest-corpus --exclude-ids.
void AddRestCorpusOptions(Command command, RestStoreOptions& options);

// REST's drafter on the store that the options name. FailedPrecondition if they
// name none, or the snapshot belongs to another tokenizer.
absl::StatusOr<std::unique_ptr<Drafter>> MakeRestDrafter(
    const RestOptions& rest, const RestStoreOptions& options,
    const Tokenizer& tokenizer);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TESTS_LAB_CLI_REST_OPTIONS_H_
