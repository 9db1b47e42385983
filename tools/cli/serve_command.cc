// foretoken serve: foretoken-local with its page and the API of OpenAI on this
// machine.
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/flags.h"
#include "common/config/version.h"
#include "common/rpc/run_service.h"
#include "services/local/stack.h"
#include "tools/cli/command.h"

namespace foretoken::cli {
namespace {

// Flags of foretoken-local that `serve` gives where the caller names no address:
// one on this machine, whose user is the only caller.
constexpr char kListen[] = "--http-listen=127.0.0.1:8080";
constexpr char kSingleUser[] = "--single-user";

bool IsGiven(absl::string_view argument,
             const std::vector<std::string>& words) {
  const absl::string_view flag = argument.substr(0, argument.find('='));
  // As the services do, an empty variable counts as unset. substr(2) drops the
  // dashes.
  const char* const set = std::getenv(EnvironmentName(flag.substr(2)).c_str());
  return (set != nullptr && *set != '\0') ||
         absl::c_any_of(words, [&](absl::string_view word) {
           return word == flag ||
                  absl::StartsWith(word, absl::StrCat(flag, "="));
         });
}

// foretoken-local's arguments for those of `serve`, MODEL first.
std::vector<std::string> LocalArguments(const std::vector<std::string>& words) {
  std::vector<std::string> arguments = {"foretoken-local"};
  // Only together with the default address: an address that the user chose may
  // be reachable by others.
  if (!IsGiven(kListen, words)) {
    arguments.emplace_back(kListen);
    if (!IsGiven(kSingleUser, words)) arguments.emplace_back(kSingleUser);
  }
  const bool has_model = !words.empty() && !absl::StartsWith(words[0], "-");
  if (has_model) arguments.push_back(absl::StrCat("--model=", words[0]));
  arguments.insert(arguments.end(), words.begin() + (has_model ? 1 : 0),
                   words.end());
  return arguments;
}

absl::Status Serve(const std::vector<std::string>& words) {
  // `serve --port 1 MODEL` would take MODEL for a value of a flag, and then
  // complain about a missing model.
  if (!words.empty() && absl::StartsWith(words[0], "-") &&
      !absl::StartsWith(words.back(), "-") && !IsGiven("--model", words) &&
      !IsGiven("--random-model", words)) {
    return absl::InvalidArgumentError(
        "MODEL comes first: foretoken serve MODEL [FLAGS]");
  }
  const std::vector<std::string> arguments = LocalArguments(words);
  // Pointers into `arguments`, which outlives the call.
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  rpc::ServiceInfo info = local::LocalService::kInfo;
  info.program = "foretoken serve MODEL";
  local::LocalService service;
  // The version line is foretoken's, not that of foretoken-local, whose flags
  // these are.
  const int exit_code = rpc::RunService(
      info,
      [&service](Flags& flags) {
        flags.Version(VersionLine("foretoken"));
        service.AddFlags(flags);
      },
      [&service](metrics::Registry& registry) {
        return service.Make(registry);
      },
      static_cast<int>(argv.size()), argv.data());
  // It has reported its errors, with exit codes of its own.
  // Not returned: main would turn it into its own codes, and 2 and 1 mean
  // something to supervisors.
  std::exit(exit_code);
}

}  // namespace

void AddServeCommand(Command root) {
  const auto [command, words] = root.AddCommand<std::vector<std::string>>(
      "serve",
      "Serve MODEL with a page and OpenAI's API on http://127.0.0.1:8080/, "
      "with any flags of foretoken-local",
      Serve);
  command.TakeRest(words);
}

}  // namespace foretoken::cli
