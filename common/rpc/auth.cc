#include "common/rpc/auth.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/log_throttle.h"
#include "common/base/status_macros.h"
#include "common/net/peer_name.h"
#include "common/rpc/token_names.h"

namespace foretoken::rpc {
namespace {

// kMaxTokens lines of about a kilobyte each.
constexpr uint64_t kMaxTokenFileBytes = uint64_t{1} << 20;
// Probes carry no token: Kubernetes' gRPC probes cannot send one.
constexpr char kHealthPrefix[] = "/grpc.health.v1.Health/";
constexpr int32_t kMaxRequests = 4096;
constexpr int64_t kMaxPerMinute = 1'000'000'000;
// Label in metrics of all callers without a name of their own.
constexpr char kUnnamed[] = "other";
constexpr char kSpeaksForOthers[] = "speaks_for_others";
// Bytes of a token's hash that name an account without a name of its own.
constexpr size_t kNameDigestBytes = 8;

absl::string_view View(grpc::string_ref ref) {
  return {ref.data(), ref.size()};
}

struct TokenLine {
  int number = 0;  // in the file, from 1
  std::string token;
  std::string name;
  std::optional<double> weight;
  std::optional<int32_t> max_requests;
  std::optional<int64_t> requests_per_minute;
  std::optional<int64_t> tokens_per_minute;
  bool speaks_for_others = false;
  bool has_attributes = false;  // beyond the name
};

bool IsPrintable(absl::string_view text) {
  for (const char c : text) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

// Reads "name=N" with N in 1..max; false if `word` is another attribute.
template <typename T>
bool ReadLimit(absl::string_view word, absl::string_view name, T max,
               std::optional<T>& limit, std::string& defect) {
  if (!absl::ConsumePrefix(&word, name) || !absl::ConsumePrefix(&word, "=")) {
    return false;
  }
  T& read = limit.emplace();
  if (!absl::SimpleAtoi(word, &read) || read < 1 || read > max) {
    defect = absl::StrCat(name, ": want 1..", max);
  }
  return true;
}

// Returns the defect of the line; empty if it has none. Never quotes the
// token, because the result is logged.
std::string ParseLine(absl::string_view line, TokenLine& parsed) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words[0].size() < Callers::kMinTokenBytes || !IsPrintable(words[0])) {
    return absl::StrCat("want a token of at least ", Callers::kMinTokenBytes,
                        " printable characters, no spaces");
  }
  parsed.token = std::string(words[0]);
  std::string defect;
  for (size_t i = 1; i < words.size() && defect.empty(); ++i) {
    absl::string_view word = words[i];
    if (ReadLimit(word, "requests", kMaxRequests, parsed.max_requests,
                  defect) ||
        ReadLimit(word, "requests_per_minute", kMaxPerMinute,
                  parsed.requests_per_minute, defect) ||
        ReadLimit(word, "tokens_per_minute", kMaxPerMinute,
                  parsed.tokens_per_minute, defect)) {
      continue;
    }
    if (word == kSpeaksForOthers) {
      parsed.speaks_for_others = true;
    } else if (absl::ConsumePrefix(&word, "weight=")) {
      double& weight = parsed.weight.emplace();
      if (!absl::SimpleAtod(word, &weight) ||
          !(weight >= kMinCallerWeight && weight <= kMaxCallerWeight)) {
        return absl::StrCat("weight: want ", kMinCallerWeight, "..",
                            kMaxCallerWeight);
      }
    } else if (i == 1 && word.size() <= Callers::kMaxNameBytes &&
               IsPrintable(word) && !absl::StrContains(word, '=')) {
      if (word == kUnnamed) {
        return absl::StrCat("name ", kUnnamed,
                            ": stands for callers without a name");
      }
      parsed.name = std::string(word);
    } else {
      return "want TOKEN [NAME] [weight=W] [requests=N] "
             "[requests_per_minute=N] [tokens_per_minute=N] "
             "[speaks_for_others]";
    }
  }
  // The token, the name if there is one, and nothing else.
  parsed.has_attributes = words.size() > (parsed.name.empty() ? 1u : 2u);
  return defect;
}

// Weights and limits belong to the account: any of its lines may give them, and
// the others take them over. False if two lines disagree.
template <typename T>
bool Merge(const std::optional<T>& given, std::optional<T>& account) {
  if (!account.has_value()) account = given;
  return !given.has_value() || *given == *account;
}

absl::StatusOr<std::vector<TokenLine>> ReadTokens(const std::string& path,
                                                  bool names_only) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::string text,
                             ReadFile(path, kMaxTokenFileBytes));
  std::vector<TokenLine> tokens;
  std::map<std::string, TokenLine> accounts;  // by name
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    TokenLine& token = tokens.emplace_back();
    token.number = line_number;
    std::string problem = ParseLine(line, token);
    if (problem.empty() && names_only && token.has_attributes) {
      problem =
          "want TOKEN [NAME] alone: weights, limits and speaks_for_others "
          "count in the orchestrator's token file";
    }
    if (problem.empty() && !token.name.empty()) {
      TokenLine& account = accounts[token.name];
      if (!Merge(token.weight, account.weight) ||
          !Merge(token.max_requests, account.max_requests) ||
          !Merge(token.requests_per_minute, account.requests_per_minute) ||
          !Merge(token.tokens_per_minute, account.tokens_per_minute)) {
        problem = absl::StrCat("an earlier line gives account ", token.name,
                               " another weight or limit");
      }
    }
    if (!problem.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", line_number, ": ", problem));
    }
  }
  if (tokens.empty() || tokens.size() > Callers::kMaxTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": holds ", tokens.size(), " tokens, want 1..",
                     Callers::kMaxTokens));
  }
  // A second walk, since a later line may complete the account of an earlier
  // one.
  for (TokenLine& token : tokens) {
    const auto account = accounts.find(token.name);
    if (account == accounts.end()) continue;
    token.weight = account->second.weight;
    token.max_requests = account->second.max_requests;
    token.requests_per_minute = account->second.requests_per_minute;
    token.tokens_per_minute = account->second.tokens_per_minute;
  }
  return tokens;
}

// Names an account in logs and limits without revealing its token.
std::string NameOfUnnamed(const Sha256Digest& digest) {
  const absl::string_view bytes(reinterpret_cast<const char*>(digest.data()),
                                kNameDigestBytes);
  return absl::StrCat("token-", absl::BytesToHexString(bytes));
}

absl::string_view Principal(
    const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
  const auto principal = metadata.find(kPrincipalKey);
  return principal == metadata.end() ? "" : View(principal->second);
}

class BearerProcessor final : public grpc::AuthMetadataProcessor {
 public:
  explicit BearerProcessor(std::shared_ptr<const Callers> callers)
      : callers_(std::move(callers)) {}

  // Hashing and comparing are fast: run on gRPC's thread instead of its pool.
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*,
                       OutputMetadata*, OutputMetadata*) override {
    // gRPC passes the method as HTTP/2's pseudo-header :path.
    const auto path = metadata.find(":path");
    if (path != metadata.end() &&
        absl::StartsWith(View(path->second), kHealthPrefix)) {
      return grpc::Status::OK;
    }
    // Accept exactly one header: of two, CallerOf might read the other one and
    // attribute the call to another account.
    const auto [first, end] = metadata.equal_range("authorization");
    const bool one = first != end && std::next(first) == end;
    const absl::string_view header =
        one ? View(first->second) : absl::string_view();
    if (callers_->Find(header, Principal(metadata)).has_value()) {
      return grpc::Status::OK;
    }
    if (callers_->Find(header).has_value()) {
      // Gateways ask with one every few seconds: neither counted nor logged.
      return grpc::Status(
          grpc::StatusCode::UNAUTHENTICATED,
          absl::StrCat("want the name of a caller in `", kPrincipalKey, "`"));
    }
    callers_->CountStranger();
    if (throttle_.Take()) {
      FORETOKEN_LOG(kWarning, "refused a call without a known token",
                    path == metadata.end()
                        ? ""
                        : absl::StrCat(" of ", View(path->second)),
                    throttle_.Skipped());
    }
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                        "want a known bearer token in `authorization`");
  }

 private:
  const std::shared_ptr<const Callers> callers_;
  LogThrottle throttle_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Callers>> Callers::Load(
    const std::string& path, Clock clock) {
  const std::shared_ptr<Callers> callers(new Callers(path, std::move(clock)));
  FORETOKEN_RETURN_IF_ERROR(callers->known_.Load());
  return callers;
}

absl::StatusOr<std::vector<Callers::Known>> Callers::Read(
    const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<TokenLine> lines,
                             ReadTokens(path, /*names_only=*/false));
  std::vector<Known> known;
  std::map<std::string, int> uses;  // by name
  for (const TokenLine& line : lines) {
    Known& added = known.emplace_back();
    // Keep only the hash: the process does not hold the tokens.
    added.digest = Sha256().Update(line.token).Finish();
    added.caller.name = line.name;
    added.caller.named = !line.name.empty();
    added.caller.authenticated = true;
    added.caller.weight = line.weight.value_or(added.caller.weight);
    added.caller.max_requests =
        line.max_requests.value_or(added.caller.max_requests);
    added.caller.requests_per_minute = line.requests_per_minute.value_or(0);
    added.caller.tokens_per_minute = line.tokens_per_minute.value_or(0);
    added.speaks_for_others = line.speaks_for_others;
    if (line.name.empty()) added.caller.name = NameOfUnnamed(added.digest);
    ++uses[added.caller.name];
  }
  // A token without a name has an account of its own.
  for (size_t i = 0; i < known.size(); ++i) {
    const Caller& caller = known[i].caller;
    if (caller.named || uses[caller.name] == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", lines[i].number,
                     ": another line has this token, or the name ", caller.name,
                     " that stands for it"));
  }
  return known;
}

std::optional<Caller> Callers::Find(absl::string_view authorization) const {
  return Find(authorization, "");
}

std::optional<Caller> Callers::Find(absl::string_view authorization,
                                    absl::string_view principal) const {
  if (!absl::ConsumePrefix(&authorization, "Bearer ")) return std::nullopt;
  const Sha256Digest digest = Sha256().Update(authorization).Finish();
  const std::shared_ptr<const std::vector<Known>> table = known_.Get();
  // Compare every byte of every digest, also after a match, so that the time
  // tells neither the token's bytes nor its position.
  const Known* found = nullptr;
  for (const Known& known : *table) {
    unsigned difference = 0;
    for (size_t i = 0; i < known.digest.size(); ++i) {
      difference |= static_cast<unsigned>(known.digest[i] ^ digest[i]);
    }
    if (difference == 0) found = &known;
  }
  if (found == nullptr) return std::nullopt;
  if (!found->speaks_for_others || principal.empty()) return found->caller;
  if (principal.size() > kMaxNameBytes || !IsPrintable(principal)) {
    return std::nullopt;
  }
  for (const Known& known : *table) {
    if (known.caller.name == principal) return known.caller;
  }
  // A name without an account here is still the gateway's word.
  Caller caller;
  caller.name = std::string(principal);
  caller.authenticated = true;
  return caller;
}

std::shared_ptr<grpc::AuthMetadataProcessor> MakeBearerProcessor(
    std::shared_ptr<const Callers> callers) {
  return std::make_shared<BearerProcessor>(std::move(callers));
}

Caller CallerOf(const grpc::ServerContextBase& context,
                const Callers* callers) {
  Caller caller;
  if (callers != nullptr) {
    const auto& metadata = context.client_metadata();
    const auto header = metadata.find("authorization");
    if (header == metadata.end()) return caller;
    return callers->Find(View(header->second), Principal(metadata))
        .value_or(caller);
  }
  const auto auth = context.auth_context();
  // Local credentials also set a peer identity, the security level of the
  // connection, which names no caller.
  if (auth != nullptr &&
      absl::StartsWith(auth->GetPeerIdentityPropertyName(), "x509_")) {
    const auto identity = auth->GetPeerIdentity();
    if (!identity.empty()) {
      caller.name = std::string(View(identity.front()));
      // A certificate's subject may be longer than the fields and limits of a
      // caller's name allow; its hash is as distinct.
      if (caller.name.size() > kMaxCallerBytes) {
        caller.name = HexDigest(Sha256().Update(caller.name).Finish());
      }
      caller.authenticated = true;
      return caller;
    }
  }
  caller.name = net::PeerName(context.peer());
  return caller;
}

absl::StatusOr<std::string> LoadClientToken(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<TokenLine> tokens,
                             ReadTokens(path, /*names_only=*/false));
  return tokens.front().token;
}

absl::Status CheckNamesOnly(const std::string& path) {
  return ReadTokens(path, /*names_only=*/true).status();
}

}  // namespace foretoken::rpc
