#include "common/rpc/auth.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"

namespace foretoken::rpc {
namespace {

constexpr uint64_t kMaxTokenFileBytes = uint64_t{1} << 20;
constexpr char kHealthPrefix[] = "/grpc.health.v1.Health/";

absl::string_view View(grpc::string_ref ref) {
  return {ref.data(), ref.size()};
}

absl::StatusOr<std::vector<std::string>> ReadTokens(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::string text,
                             ReadFile(path, kMaxTokenFileBytes));
  std::vector<std::string> tokens;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    bool printable = true;
    for (const char c : line) printable &= absl::ascii_isgraph(c);
    if (line.size() < BearerTokens::kMinTokenBytes || !printable) {
      // The token itself must not reach a log.
      return absl::InvalidArgumentError(absl::StrCat(
          path, ":", line_number, ": want a token of at least ",
          BearerTokens::kMinTokenBytes, " printable characters, no spaces"));
    }
    tokens.emplace_back(line);
  }
  if (tokens.empty() || tokens.size() > BearerTokens::kMaxTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": holds ", tokens.size(), " tokens, want 1..",
                     BearerTokens::kMaxTokens));
  }
  return tokens;
}

class BearerProcessor final : public grpc::AuthMetadataProcessor {
 public:
  explicit BearerProcessor(BearerTokens tokens) : tokens_(std::move(tokens)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*,
                       OutputMetadata* consumed, OutputMetadata*) override {
    const auto path = metadata.find(":path");
    if (path != metadata.end() &&
        absl::StartsWith(View(path->second), kHealthPrefix)) {
      return grpc::Status::OK;
    }
    const auto range = metadata.equal_range("authorization");
    bool accepted = false;
    for (auto it = range.first; it != range.second; ++it) {
      if (!tokens_.Accepts(View(it->second))) continue;
      accepted = true;
      // Handlers never see a credential.
      consumed->emplace("authorization", std::string(View(it->second)));
    }
    if (accepted) return grpc::Status::OK;
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                        "want a known bearer token in `authorization`");
  }

 private:
  const BearerTokens tokens_;
};

}  // namespace

absl::StatusOr<BearerTokens> BearerTokens::Load(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<std::string> tokens,
                             ReadTokens(path));
  BearerTokens result;
  for (const std::string& token : tokens) {
    result.digests_.push_back(Sha256().Update(token).Finish());
  }
  return result;
}

bool BearerTokens::Accepts(absl::string_view authorization) const {
  if (!absl::ConsumePrefix(&authorization, "Bearer ")) return false;
  const Sha256Digest digest = Sha256().Update(authorization).Finish();
  // Every byte of every digest is looked at, whatever matched before.
  bool accepted = false;
  for (const Sha256Digest& known : digests_) {
    unsigned difference = 0;
    for (size_t i = 0; i < known.size(); ++i) {
      difference |= static_cast<unsigned>(known[i] ^ digest[i]);
    }
    accepted |= difference == 0;
  }
  return accepted;
}

std::shared_ptr<grpc::AuthMetadataProcessor> MakeBearerProcessor(
    BearerTokens tokens) {
  return std::make_shared<BearerProcessor>(std::move(tokens));
}

absl::StatusOr<std::string> LoadClientToken(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<std::string> tokens,
                             ReadTokens(path));
  return tokens.front();
}

}  // namespace foretoken::rpc
