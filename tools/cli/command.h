// Registration of the subcommands of `foretoken`.
//
// Each command has its own file. Add<Name>Command registers its options with
// `app` and, if the command is selected, stores its work in `run`, which main
// calls once after parsing. Results go to stdout, logs to stderr.
#ifndef FORETOKEN_TOOLS_CLI_COMMAND_H_
#define FORETOKEN_TOOLS_CLI_COMMAND_H_

#include "tools/cli/app.h"

namespace foretoken::cli {

void AddBenchCommand(CLI::App& app, Run& run);
// The subcommand `bench modes`.
void AddBenchModesCommand(CLI::App& bench, Run& run);
void AddChatCommand(CLI::App& app, Run& run);
void AddConvertCommand(CLI::App& app, Run& run);
void AddCrestCommand(CLI::App& app, Run& run);
// The subcommand `crest ingest`, where the services are built.
void AddCrestIngestCommand(CLI::App& crest, Run& run);
void AddGenerateCommand(CLI::App& app, Run& run);
void AddGrammarCommand(CLI::App& app, Run& run);
void AddHealthCommand(CLI::App& app, Run& run);
void AddInspectCommand(CLI::App& app, Run& run);
void AddPriorCommand(CLI::App& app, Run& run);
// The subcommand `prior grow`.
void AddPriorGrowCommand(CLI::App& prior, Run& run);
void AddQuantizeCommand(CLI::App& app, Run& run);
void AddReplayCommand(CLI::App& app, Run& run);
void AddTokenizeCommands(CLI::App& app, Run& run);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_COMMAND_H_
