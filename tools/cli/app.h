// The frame of a command line: its commands and their exit statuses. Shared by
// `foretoken` and the laboratory's `foretoken-lab`.
#ifndef FORETOKEN_TOOLS_CLI_APP_H_
#define FORETOKEN_TOOLS_CLI_APP_H_

#include <functional>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace foretoken::cli {

using Run = std::function<absl::Status()>;

// A command whose options are being registered. `app` keeps `options` alive.
template <typename Options>
struct Command {
  CLI::App& app;
  Options& options;
};

// Registers subcommand `name` of `parent`, which runs `work`. --help shows the
// options' defaults.
template <typename Options, typename Work>
Command<Options> AddCommand(CLI::App& parent, Run& run, const std::string& name,
                            const std::string& description, Work work) {
  CLI::App* app = parent.add_subcommand(name, description);
  app->option_defaults()->always_capture_default();
  auto options = std::make_shared<Options>();
  app->callback([options, work, &run] {
    run = [options, work] { return work(*options); };
  });
  return {*app, *options};
}

// The rest of main(), once all commands are registered with `app`: parses, then
// calls `run`, which the chosen command has set. Returns the exit status: 2 for
// a bad command line, 1 for work that failed; stderr names `program` and why.
int RunApp(CLI::App& app, const Run& run, const char* program, int argc,
           char** argv);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_APP_H_
