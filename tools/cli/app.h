// A command line: a program, its commands and their options. Shared by
// `foretoken` and the laboratory's `foretoken-lab`.
//
//   App app("foretoken", "Lossless speculative decoding.");
//   const auto [command, options] = app.root().AddCommand<QuantizeOptions>(
//       "quantize", "Write a model as a quantised GGUF file", Quantize);
//   command.Add("--model", options.model, "A directory").Required();
//   return app.Main(argc, argv);
//
// Only app.cc includes the parser, CLI11, whose templates take seconds to
// compile in every source that uses them. Command and Option are handles: cheap
// to copy, valid while their App exists. Owned by one thread.
#ifndef FORETOKEN_TOOLS_CLI_APP_H_
#define FORETOKEN_TOOLS_CLI_APP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace foretoken::cli {

// An option of a command. Each call changes the option and returns it.
// App::Main refuses a command line that breaks one of these rules.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  // The option must be given.
  Option Required() const;
  // Undoes Required, for an option that another function added.
  Option Optional() const;

  // Every value must be a number from `min` to `max`.
  Option InRange(int32_t min, int32_t max) const;
  Option InRange(int64_t min, int64_t max) const;
  Option InRange(double min, double max) const;
  // Every value must be a number, 0 or above.
  Option NonNegative() const;
  // Every value must be a number above 0.
  Option Positive() const;
  // Every value must be one of `choices`.
  Option OneOf(const std::vector<std::string>& choices) const;
  // Calls `check` with the text of every value. It returns what is wrong with
  // the text; an empty string accepts it.
  Option Check(std::function<std::string(const std::string&)> check) const;

  // If the option is not given, its value comes from this environment variable.
  Option Environment(const std::string& variable) const;

  // The option may only be given together with `other`.
  Option Needs(Option other) const;
  // The two options may not be given together.
  Option Excludes(Option other) const;

  // A list takes all words that follow the option. CommaSeparated also splits
  // them at commas; Repeated takes one word each time the option is given.
  Option CommaSeparated() const;
  Option Repeated() const;

 private:
  CLI::Option* option_;
};

template <typename Options>
struct CommandWith;

// A command: a group of other commands, or one that does work and has options.
class Command {
 public:
  // Adds an option, which sets `value` during parsing. The present `value` is
  // the default, which --help shows. `names`, separated by commas, are flags
  // ("-v,--verbose") or, without dashes, a positional argument ("model").
  // `value` must outlive the App.
  Option Add(const std::string& names, int32_t& value,
             const std::string& help) const;
  Option Add(const std::string& names, int64_t& value,
             const std::string& help) const;
  Option Add(const std::string& names, uint32_t& value,
             const std::string& help) const;
  Option Add(const std::string& names, uint64_t& value,
             const std::string& help) const;
  Option Add(const std::string& names, float& value,
             const std::string& help) const;
  Option Add(const std::string& names, double& value,
             const std::string& help) const;
  Option Add(const std::string& names, std::string& value,
             const std::string& help) const;
  Option Add(const std::string& names, std::optional<uint64_t>& value,
             const std::string& help) const;
  Option Add(const std::string& names, std::optional<std::string>& value,
             const std::string& help) const;
  Option Add(const std::string& names, std::vector<int32_t>& value,
             const std::string& help) const;
  Option Add(const std::string& names, std::vector<int64_t>& value,
             const std::string& help) const;
  Option Add(const std::string& names, std::vector<std::string>& value,
             const std::string& help) const;

  // Adds an option without a value, which sets `value` to true.
  Option AddFlag(const std::string& names, bool& value,
                 const std::string& help) const;

  // Puts all words after the command into `rest`, flags such as --help too, and
  // parses none of them. `rest` must outlive the App.
  void TakeRest(std::vector<std::string>& rest) const;

  // The option with this name, which must have been added.
  Option Get(const std::string& name) const;

  // Adds a group of commands, one of which must be given.
  Command AddGroup(const std::string& name,
                   const std::string& description) const;

  // Adds a command. Its options are to set fields of the returned `Options`,
  // which the App keeps alive. If the command is given, App::Main calls
  // `work(options)`, which returns a Status.
  template <typename Options, typename Work>
  CommandWith<Options> AddCommand(const std::string& name,
                                  const std::string& description,
                                  Work work) const;

 private:
  friend class App;
  using Run = std::function<absl::Status()>;

  Command(CLI::App* app, Run* run) : app_(app), run_(run) {}
  Command AddRun(const std::string& name, const std::string& description,
                 Run run) const;

  CLI::App* app_;
  Run* run_;  // the App's; parsing sets it to the work of the given command
};

// A command, and what its options set.
template <typename Options>
struct CommandWith {
  Command command;
  Options& options;
};

// A program: a group of commands, with --help and --version.
class App {
 public:
  // --version and the errors of commands name `program`.
  App(const std::string& program, const std::string& description);
  ~App();
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  // The group that all commands are added to.
  Command root();

  // The rest of main(), once all commands are added: parses the command line
  // and does the work of its command. Returns the exit status: 0, 1 if the work
  // failed, or 2 if the command line was refused; stderr says why.
  int Main(int argc, char** argv);

 private:
  const std::string program_;
  const std::unique_ptr<CLI::App> app_;
  Command::Run run_;
};

template <typename Options, typename Work>
CommandWith<Options> Command::AddCommand(const std::string& name,
                                         const std::string& description,
                                         Work work) const {
  auto options = std::make_shared<Options>();
  const Command command =
      AddRun(name, description, [options, work] { return work(*options); });
  return {command, *options};
}

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_APP_H_
