// Registration of the subcommands of `foretoken-lab`, as tools/cli/command.h
// does it for `foretoken`.
#ifndef FORETOKEN_TESTS_LAB_CLI_COMMAND_H_
#define FORETOKEN_TESTS_LAB_CLI_COMMAND_H_

#include "tools/cli/app.h"

namespace foretoken::cli {

void AddModelReplayCommand(Command root);
void AddRestCommands(Command root);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TESTS_LAB_CLI_COMMAND_H_
