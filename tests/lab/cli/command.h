// Registration of the subcommands of `foretoken-lab`, as tools/cli/command.h
// does it for `foretoken`.
#ifndef FORETOKEN_TESTS_LAB_CLI_COMMAND_H_
#define FORETOKEN_TESTS_LAB_CLI_COMMAND_H_

#include "tools/cli/app.h"

namespace foretoken::cli {

void AddModelReplayCommand(CLI::App& app, Run& run);
void AddRestCommands(CLI::App& app, Run& run);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TESTS_LAB_CLI_COMMAND_H_
