#include "common/config/flags.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/log_output.h"

namespace foretoken {
namespace {

// Payload keys that mark a Status as text that was asked for or as a usage
// error, so that ExitWithError can choose stream and exit code.
constexpr char kHelpPayload[] = "foretoken/help";
constexpr char kUsagePayload[] = "foretoken/usage";

// Text of a number or duration into `value`; false if it is none, or does not
// fit into T.
bool ParseValue(const std::string& text, int32_t* value) {
  // SimpleAtoi refuses trailing text and values out of range, so "8k" is an
  // error and not 8.
  return absl::SimpleAtoi(text, value);
}
bool ParseValue(const std::string& text, int64_t* value) {
  return absl::SimpleAtoi(text, value);
}
bool ParseValue(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value);
}
bool ParseValue(const std::string& text, absl::Duration* value) {
  return absl::ParseDuration(text, value);
}

// Not an error, but the caller must stop its start-up all the same.
absl::Status AskedFor(const std::string& text) {
  absl::Status status = absl::CancelledError(text);
  status.SetPayload(kHelpPayload, absl::Cord());
  return status;
}

template <typename T>
std::string Shown(T value) {
  return absl::StrCat(value);
}
std::string Shown(absl::Duration value) { return absl::FormatDuration(value); }

// Sets `field` to a value within `range`.
template <typename T>
auto RangeSetter(T* field, FlagRange<T> range, const char* kind = "") {
  return [=](const std::vector<std::string>& text) {
    T value = {};
    // The negated form also refuses NaN.
    // Durations need a unit: 30 alone is refused rather than read as seconds.
    if (!ParseValue(text.front(), &value) ||
        !(value >= range.min && value <= range.max)) {
      return absl::StrCat("want ", kind, Shown(range.min), "..",
                          Shown(range.max));
    }
    *field = value;
    return std::string();
  };
}

auto TextSetter(std::string* field) {
  return [=](const std::vector<std::string>& text) {
    *field = text.front();
    return std::string();
  };
}

}  // namespace

struct Flags::Flag {
  std::string name;
  std::string default_text;
  Setter set;
  CLI::Option* option = nullptr;  // nullptr: environment only
  bool secret = false;
  bool url = false;  // secret, but allowed in argv if it has no user
  bool list = false;
  // Value of the flag when given without one; empty: a value is required.
  std::string bare_value;
  std::vector<std::string> from_argv;
  std::vector<std::string> value;  // as given; empty: the default
};

std::string EnvironmentName(absl::string_view flag) {
  return absl::StrCat(
      "FORETOKEN_",
      absl::StrReplaceAll(absl::AsciiStrToUpper(flag), {{"-", "_"}}));
}

Flags::Flags(const std::string& program, const std::string& description)
    : app_(std::make_unique<CLI::App>(description, program)) {}
Flags::~Flags() = default;

Flags::Flag& Flags::Add(const std::string& name, const std::string& help,
                        const std::string& default_text, Setter set) {
  auto flag = std::make_unique<Flag>();
  flag->name = name;
  flag->default_text = default_text;
  flag->set = std::move(set);
  flag->option = app_->add_option("--" + name, flag->from_argv,
                                  absl::StrCat(help, " [", default_text, "] ($",
                                               EnvironmentName(name), ")"));
  // The last one wins if a flag is repeated.
  // take_last, so that a wrapper script's flags can be overridden after them.
  flag->option->expected(1)->take_last();
  flags_.push_back(std::move(flag));
  return *flags_.back();
}

void Flags::Int(const std::string& name, int32_t* field,
                FlagRange<int32_t> range, const std::string& help) {
  Add(name, help, Shown(*field), RangeSetter(field, range));
}

void Flags::Int64(const std::string& name, int64_t* field,
                  FlagRange<int64_t> range, const std::string& help) {
  Add(name, help, Shown(*field), RangeSetter(field, range));
}

void Flags::Double(const std::string& name, double* field,
                   FlagRange<double> range, const std::string& help) {
  Add(name, help, Shown(*field), RangeSetter(field, range));
}

void Flags::Duration(const std::string& name, absl::Duration* field,
                     FlagRange<absl::Duration> range, const std::string& help) {
  Add(name, help, Shown(*field),
      RangeSetter(field, range, "a duration with its unit, "));
}

void Flags::Bool(const std::string& name, bool* field,
                 const std::string& help) {
  Flag& flag =
      Add(name, help, *field ? "true" : "false", [=](const auto& text) {
        return absl::SimpleAtob(text.front(), field) ? std::string()
                                                     : "want true or false";
      });
  // CLI11 leaves no text behind for a bare --name.
  flag.bare_value = "true";
  flag.option->expected(0, 1)->default_str("true");
}

void Flags::String(const std::string& name, std::string* field,
                   const std::string& help) {
  Flag& flag = Add(name, help, *field, TextSetter(field));
  // Allows --name= as the empty string.
  flag.option->expected(0, 1);
}

void Flags::Choice(const std::string& name, std::string* field,
                   const std::vector<std::string>& choices,
                   const std::string& help) {
  const std::string wanted = absl::StrJoin(choices, "|");
  Add(name, absl::StrCat(help, ": ", wanted), *field,
      [=](const auto& text) -> std::string {
        if (!absl::c_linear_search(choices, text.front())) {
          return absl::StrCat("want ", wanted);
        }
        *field = text.front();
        return "";
      });
}

void Flags::List(const std::string& name, std::vector<std::string>* field,
                 const std::string& help) {
  Flag& flag = Add(name, help, absl::StrJoin(*field, ","),
                   [=](const auto& text) -> std::string {
                     field->clear();
                     for (const std::string& part : text) {
                       for (absl::string_view item :
                            absl::StrSplit(part, ',', absl::SkipWhitespace())) {
                         item = absl::StripAsciiWhitespace(item);
                         field->emplace_back(item);
                       }
                     }
                     return "";
                   });
  flag.list = true;
  flag.option->expected(1)->take_all();
}

// No option on the command line, where every user of the machine could read it
// in the list of processes.
void Flags::Secret(const std::string& name, std::string* field,
                   const std::string& help) {
  auto flag = std::make_unique<Flag>();
  flag->name = name;
  flag->secret = true;
  flag->set = TextSetter(field);
  flags_.push_back(std::move(flag));
  // No CLI11 option exists for it, so add it to the footer of --help.
  app_->footer(absl::StrCat(app_->get_footer(), "\n$", EnvironmentName(name),
                            ": ", help));
}

void Flags::Url(const std::string& name, std::string* field,
                const std::string& help) {
  // Unlike Secret it may be given as an argument, since most URLs have no
  // password; TakeValue refuses one that has.
  String(name, field, help);
  flags_.back()->secret = true;
  flags_.back()->url = true;
}

void Flags::Version(const std::string& line) {
  app_->set_version_flag("--version", line);
}

void Flags::Require(const std::string& name,
                    std::function<std::string()> rule) {
  rules_.emplace_back(name, std::move(rule));
}

// Takes the text of the flag from argv, else from the environment, and sets the
// field. An empty variable counts as unset.
void Flags::TakeValue(Flag& flag, std::vector<std::string>& problems) {
  if (flag.option != nullptr && flag.option->count() > 0) {
    flag.value = flag.from_argv;
    if (flag.value.empty()) flag.value = {flag.bare_value};
    if (!flag.list) flag.value = {flag.value.back()};
  } else if (const char* text = std::getenv(EnvironmentName(flag.name).c_str());
             text != nullptr && *text != '\0') {
    // One text, also for a list: the list's setter splits at commas.
    flag.value = {text};
  } else {
    return;
  }
  std::string wanted = flag.set(flag.value);
  // Checked after `set`, whose message about the same value would have to be
  // masked anyway. Only the command line is public.
  if (flag.url && !flag.from_argv.empty() &&
      absl::StrContains(flag.value.back(), "@")) {
    wanted = "want user and password from the environment alone";
  }
  if (wanted.empty()) return;
  const std::string shown =
      flag.secret ? "****" : absl::StrJoin(flag.value, ",");
  problems.push_back(absl::StrCat("--", flag.name, "=", shown, " (",
                                  EnvironmentName(flag.name), "): ", wanted));
}

absl::Status Flags::Parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return AskedFor(app_->help());
  } catch (const CLI::CallForVersion& version) {
    return AskedFor(absl::StrCat(version.what(), "\n"));
  } catch (const CLI::Error& error) {
    // CLI11 lists what nothing took from last to first.
    const std::vector<std::string> untaken = app_->remaining();
    absl::Status bad = absl::InvalidArgumentError(absl::StrCat(
        untaken.empty()
            ? error.what()
            : absl::StrCat("unknown: ", absl::StrJoin(untaken, " ")),
        "\nsee --help"));
    bad.SetPayload(kUsagePayload, absl::Cord());
    return bad;
  }
  // Collect all problems, so that one run reports every bad flag.
  std::vector<std::string> problems;
  for (const auto& flag : flags_) TakeValue(*flag, problems);
  // The rules read the fields, so they come after all values are taken, and
  // also if some are bad: a field that could not be set has its default.
  for (const auto& [name, rule] : rules_) {
    const std::string wanted = rule();
    if (wanted.empty()) continue;
    problems.push_back(
        absl::StrCat("--", name, " (", EnvironmentName(name), "): ", wanted));
  }
  if (problems.empty()) return absl::OkStatus();
  absl::Status bad = absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  bad.SetPayload(kUsagePayload, absl::Cord());
  return bad;
}

bool Flags::Given(const std::string& name) const {
  return absl::c_any_of(flags_, [&](const auto& flag) {
    // `--name=` gives an empty text, which counts as not given.
    return flag->name == name && !absl::StrJoin(flag->value, ",").empty();
  });
}

std::string Flags::Changes() const {
  std::vector<std::string> parts;
  for (const auto& flag : flags_) {
    const std::string value = absl::StrJoin(flag->value, ",");
    // Compared with the default's text, so a flag that repeats its default does
    // not appear.
    if (flag->value.empty() || value == flag->default_text) continue;
    parts.push_back(
        absl::StrCat(flag->name, "=", flag->secret ? "****" : value));
  }
  return parts.empty() ? "defaults" : absl::StrJoin(parts, " ");
}

int ExitWithError(const absl::Status& status) {
  const std::string message(status.message());
  if (status.GetPayload(kHelpPayload).has_value()) {
    // stdout and 0, so that `--help | less` works and scripts do not take help
    // for a failure; 2 for usage errors as shells have it.
    std::fputs(message.c_str(), stdout);
    return 0;
  }
  WriteLastLine(absl::StrCat("error: ", message));
  return status.GetPayload(kUsagePayload).has_value() ? 2 : 1;
}

}  // namespace foretoken
