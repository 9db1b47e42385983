#include "common/infer/self_check.h"

#include <algorithm>
#include <cmath>

namespace foretoken {
namespace {

// One embedding may be bad by itself, such as that of an id that no text has.
constexpr int32_t kTokens = 3;

// Whether a logit after `token` is finite. Errors are the backend's.
absl::StatusOr<bool> IsFiniteAfter(Backend& backend, SessionId session,
                                   TokenId token) {
  const TokenId tokens[] = {token};
  const int32_t parents[] = {kRootParent};
  PassSession part;
  part.session = session;
  part.tokens = tokens;
  part.parents = parents;
  PassResult result;
  const absl::Status status = backend.Forward({part}, result);
  // The backend says by itself that it found no numbers.
  if (absl::IsDataLoss(status)) return false;
  if (!status.ok()) return status;
  const auto logits = backend.Logits(session, 0);
  if (!logits.ok()) return logits.status();
  return std::any_of(logits->begin(), logits->end(),
                     [](float logit) { return std::isfinite(logit); });
}

}  // namespace

absl::Status CheckLogits(Backend& backend) {
  const int32_t vocab_size = backend.config().vocab_size;
  const TokenId prompt[] = {0};
  const auto opened = backend.Open("", prompt);
  // No room to open a session says nothing about the model.
  if (!opened.ok()) return absl::OkStatus();
  bool finite = false;
  for (int32_t i = 0; i < kTokens && !finite; ++i) {
    // Spread over the vocabulary: neighbouring ids may share a fault of their
    // own.
    const auto checked =
        IsFiniteAfter(backend, opened->session,
                      static_cast<TokenId>(int64_t{vocab_size} * i / kTokens));
    // Other errors are not the logits': the first real pass will report them.
    finite = !checked.ok() || *checked;
  }
  // Nothing was committed, so nothing of this stays in the cache.
  backend.Close(opened->session).IgnoreError();
  if (finite) return absl::OkStatus();
  return absl::DataLossError("the model's logits are not finite");
}

}  // namespace foretoken
