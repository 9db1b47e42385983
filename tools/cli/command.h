// Registration of the subcommands of `foretoken`.
//
// Each command has its own file. Add<Name>Command registers its options with
// `app` and, if the command is selected, stores its work in `run`, which main
// calls once after parsing. Results go to stdout, logs to stderr.
#ifndef FORETOKEN_TOOLS_CLI_COMMAND_H_
#define FORETOKEN_TOOLS_CLI_COMMAND_H_

#include <functional>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace foretoken::cli {

using Run = std::function<absl::Status()>;

void AddBenchCommand(CLI::App& app, Run& run);
// The subcommand `bench replay`.
void AddBenchReplayCommand(CLI::App& bench, Run& run);
void AddConvertCommand(CLI::App& app, Run& run);
void AddCrestCommand(CLI::App& app, Run& run);
void AddGenerateCommand(CLI::App& app, Run& run);
void AddHealthCommand(CLI::App& app, Run& run);
void AddInspectCommand(CLI::App& app, Run& run);
void AddPriorCommand(CLI::App& app, Run& run);
void AddQuantizeCommand(CLI::App& app, Run& run);
void AddReplayCommand(CLI::App& app, Run& run);
void AddTokenizeCommands(CLI::App& app, Run& run);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_COMMAND_H_
