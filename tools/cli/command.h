// Registration of the subcommands of `foretoken`.
//
// Each command has its own file. Add<Name>Command adds the command, its options
// and its work to a group; App::Main does the work of the one that is given.
// Results go to stdout, logs to stderr.
#ifndef FORETOKEN_TOOLS_CLI_COMMAND_H_
#define FORETOKEN_TOOLS_CLI_COMMAND_H_

#include "tools/cli/app.h"

namespace foretoken::cli {

void AddBenchCommand(Command root);
// The subcommand `bench modes`.
void AddBenchModesCommand(Command bench);
void AddChatCommand(Command root);
void AddConvertCommand(Command root);
void AddCrestCommand(Command root);
// The subcommand `crest ingest`, where the services are built.
void AddCrestIngestCommand(Command crest);
void AddGenerateCommand(Command root);
void AddGrammarCommand(Command root);
void AddHealthCommand(Command root);
void AddInspectCommand(Command root);
void AddPriorCommand(Command root);
// The subcommand `prior grow`.
void AddPriorGrowCommand(Command prior);
void AddQuantizeCommand(Command root);
void AddReplayCommand(Command root);
void AddRunCommand(Command root);
// Where the services are built.
void AddServeCommand(Command root);
void AddTokenizeCommands(Command root);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_COMMAND_H_
