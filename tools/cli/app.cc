#include "tools/cli/app.h"

#include <cstdio>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/version.h"

namespace foretoken::cli {
namespace {

// Whether the command line ends at a group, without one of its commands.
bool EndsAtGroup(const CLI::App& app) {
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) {
    last = last->get_subcommands().front();
  }
  return last->get_require_subcommand_min() > 0;
}

// Says on stderr what is wrong with a command line. CLI11's own messages do not
// name an unknown command or list the known ones, and give unknown options from
// last to first.
void Refuse(const CLI::App& app, const CLI::ParseError& error,
            const std::string& program) {
  const std::vector<std::string> untaken = app.remaining(/*recurse=*/true);
  std::string wrong = absl::StrCat(error.what(), "\n");
  std::string hint = "Run with --help for more information.\n";
  if (EndsAtGroup(app) && untaken.empty()) {
    wrong = "want a command\n";
    hint = app.help();
  } else if (EndsAtGroup(app) && untaken.front().front() != '-') {
    wrong = absl::StrCat("no such command: ", untaken.front(), "\n");
  } else if (!untaken.empty()) {
    wrong = absl::StrCat("unknown: ", absl::StrJoin(untaken, " "), "\n");
  }
  std::fprintf(stderr, "%s: %s%s", program.c_str(), wrong.c_str(),
               hint.c_str());
}

}  // namespace

Option Option::Required() const { return Option(option_->required()); }

Option Option::Optional() const { return Option(option_->required(false)); }

Option Option::InRange(int32_t min, int32_t max) const {
  return Option(option_->check(CLI::Range(min, max)));
}

Option Option::InRange(int64_t min, int64_t max) const {
  return Option(option_->check(CLI::Range(min, max)));
}

Option Option::InRange(double min, double max) const {
  return Option(option_->check(CLI::Range(min, max)));
}

Option Option::NonNegative() const {
  return Option(option_->check(CLI::NonNegativeNumber));
}

Option Option::Positive() const {
  return Option(option_->check(CLI::PositiveNumber));
}

Option Option::OneOf(const std::vector<std::string>& choices) const {
  return Option(option_->check(CLI::IsMember(choices)));
}

Option Option::Check(
    std::function<std::string(const std::string&)> check) const {
  return Option(option_->check(std::move(check)));
}

Option Option::Environment(const std::string& variable) const {
  return Option(option_->envname(variable));
}

Option Option::Needs(Option other) const {
  return Option(option_->needs(other.option_));
}

Option Option::Excludes(Option other) const {
  return Option(option_->excludes(other.option_));
}

Option Option::CommaSeparated() const {
  return Option(option_->delimiter(','));
}

Option Option::Repeated() const {
  return Option(option_->expected(1)->take_all());
}

Option Command::Add(const std::string& names, int32_t& value,
                    const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::Add(const std::string& names, int64_t& value,
                    const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::Add(const std::string& names, uint32_t& value,
                    const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::Add(const std::string& names, uint64_t& value,
                    const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::Add(const std::string& names, float& value,
                    const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::Add(const std::string& names, double& value,
                    const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::Add(const std::string& names, std::string& value,
                    const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::Add(const std::string& names, std::optional<uint64_t>& value,
                    const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::Add(const std::string& names, std::optional<std::string>& value,
                    const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::Add(const std::string& names, std::vector<int32_t>& value,
                    const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::Add(const std::string& names, std::vector<int64_t>& value,
                    const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::Add(const std::string& names, std::vector<std::string>& value,
                    const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::AddFlag(const std::string& names, bool& value,
                        const std::string& help) const {
  return Option(app_->add_flag(names, value, help));
}

void Command::TakeRest(std::vector<std::string>& rest) const {
  // The rest may hold flags of another program, --help included, so this parser
  // must leave all of them alone.
  app_->set_help_flag();
  app_->prefix_command();
  // `remaining` is complete only after parsing; the words are taken over then,
  // before the command runs.
  app_->parse_complete_callback(
      [app = app_, &rest] { rest = app->remaining(); });
}

Option Command::Get(const std::string& name) const {
  return Option(app_->get_option(name));
}

Command Command::AddGroup(const std::string& name,
                          const std::string& description) const {
  CLI::App* const group = app_->add_subcommand(name, description);
  // A group alone does nothing: without a subcommand the parser prints the
  // help.
  group->require_subcommand(1);
  return Command(group, run_);
}

Command Command::AddRun(const std::string& name, const std::string& description,
                        Run run) const {
  CLI::App* const app = app_->add_subcommand(name, description);
  // Before the options are added, since defaults apply to options that come
  // later.
  app->option_defaults()->always_capture_default();
  // The callback only notes the choice; the command runs after the parser is
  // done, outside its try block.
  app->callback([run = std::move(run), chosen = run_] { *chosen = run; });
  return Command(app, run_);
}

App::App(const std::string& program, const std::string& description)
    : program_(program), app_(std::make_unique<CLI::App>(description)) {
  app_->require_subcommand(1);
  app_->set_version_flag("--version", VersionLine(program));
}

App::~App() = default;

Command App::root() { return Command(app_.get(), &run_); }

int App::Main(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help that was asked for is an error with exit code 0.
    if (error.get_exit_code() == 0) return app_->exit(error);
    // 2 for usage errors, as shells and the services have it; the parser's own
    // codes vary.
    Refuse(*app_, error, program_);
    return 2;
  }
  const absl::Status status = run_();
  if (status.ok()) return 0;
  const std::string message = status.ToString();
  std::fprintf(stderr, "%s: %s\n", program_.c_str(), message.c_str());
  return 1;
}

}  // namespace foretoken::cli
