#include "tests/support/fake_backend.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace foretoken::testing {
namespace {

uint64_t Mix(uint64_t state, uint64_t value) {  // splitmix64's finaliser
  uint64_t x = state * 0x9E3779B97F4A7C15u + value + 0x632BE59BD9B4E019u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

bool IsOutput(const PassSession& part, int32_t row) {
  const int32_t last = static_cast<int32_t>(part.tokens.size()) - 1;
  return part.outputs == RowOutputs::kAllRows ||
         (part.outputs == RowOutputs::kLastRow && row == last) ||
         (part.outputs == RowOutputs::kListedRows &&
          std::binary_search(part.output_rows.begin(), part.output_rows.end(),
                             row));
}

// Ascending rows of the pass, each once.
void CheckOutputRows(const PassSession& part) {
  int32_t least = 0;
  for (const int32_t row : part.output_rows) {
    FORETOKEN_CHECK(row >= least &&
                    row < static_cast<int32_t>(part.tokens.size()));
    least = row + 1;
  }
}

float Unit(uint64_t hash) {  // -1..1
  return static_cast<float>(hash >> 40) / 8388608.0f - 1.0f;
}

}  // namespace

std::vector<float> FakeLogits(absl::Span<const TokenId> path,
                              int32_t vocab_size) {
  uint64_t whole = 1;
  for (const TokenId token : path) whole = Mix(whole, token);
  uint64_t recent = 2;
  if (!path.empty()) recent = Mix(recent, path.back());
  std::vector<float> logits(vocab_size);
  for (int32_t id = 0; id < vocab_size; ++id) {
    logits[id] = 4.0f * Unit(Mix(recent, id)) + 0.1f * Unit(Mix(whole, id));
  }
  return logits;
}

FakeBackend::FakeBackend(const FakeBackendOptions& options)
    : options_(options),
      cache_({.pages = options.pages, .max_sessions = options.max_sessions}) {
  config_.d_model = 8;
  config_.vocab_size = options.vocab_size;
  config_.max_positions = options.max_positions;
}

absl::StatusOr<OpenedSession> FakeBackend::Open(
    absl::string_view cache_scope, absl::Span<const TokenId> prompt) {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened,
                             cache_.Open(cache_scope, prompt));
  Session& session = sessions_[opened.session];
  const auto reused = prompt.first(opened.reused_tokens);
  session.committed.assign(reused.begin(), reused.end());
  return opened;
}

absl::Status FakeBackend::Close(SessionId session) {
  sessions_.erase(session);
  return cache_.Close(session);
}

absl::StatusOr<int64_t> FakeBackend::CommittedLength(SessionId session) const {
  return cache_.CommittedLength(session);
}

absl::Status FakeBackend::Reserve(SessionId session, int64_t length) {
  return cache_.Reserve(session, length);
}

absl::Status FakeBackend::Truncate(SessionId id, int64_t length) {
  FORETOKEN_RETURN_IF_ERROR(cache_.Truncate(
      id, length, [](int32_t, int32_t, int32_t) { return absl::OkStatus(); }));
  Session& session = sessions_[id];
  session.committed.resize(length);
  session.rows.clear();
  session.may_commit = false;
  return absl::OkStatus();
}

std::vector<TokenId> FakeBackend::PathOf(const Session& session, int32_t row) {
  std::vector<TokenId> path;
  for (; row != kRootParent; row = session.rows[row].parent) {
    path.push_back(session.rows[row].token);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

void FakeBackend::ComputeLogits(absl::Span<const TokenId> path) {
  logits_ = FakeLogits(path, options_.vocab_size);
  for (TokenId id = 0; id < options_.vocab_size; ++id) {
    if (!Draws(id)) logits_[id] = -std::numeric_limits<float>::infinity();
  }
}

absl::Status FakeBackend::Forward(absl::Span<const PassSession> pass,
                                  PassResult& result) {
  ++forwards_;
  if (options_.before_pass) options_.before_pass();
  if (!fail_next_.ok()) {
    const absl::Status status = fail_next_;
    fail_next_ = absl::OkStatus();
    return status;
  }
  result.outputs.clear();
  last_pass_rows_ = 0;
  std::set<SessionId> seen;
  SamplingState::Scratch scratch;
  for (const PassSession& part : pass) {
    FORETOKEN_CHECK(seen.insert(part.session).second);
    FORETOKEN_CHECK(sessions_.count(part.session) == 1);
    FORETOKEN_CHECK(!part.tokens.empty() &&
                    part.tokens.size() == part.parents.size());
    CheckOutputRows(part);
    Session& session = sessions_[part.session];
    const int64_t committed = static_cast<int64_t>(session.committed.size());
    FORETOKEN_CHECK(part.sampling == nullptr ||
                    part.sampling->length() == committed);
    session.rows.clear();
    session.may_commit = true;
    const int32_t rows = static_cast<int32_t>(part.tokens.size());
    last_pass_rows_ += rows;
    const absl::Span<const uint64_t* const> masks =
        part.allowed == nullptr ? absl::Span<const uint64_t* const>()
                                : part.allowed->Make();
    auto& outputs = result.outputs.emplace_back();
    for (int32_t row = 0; row < rows; ++row) {
      FORETOKEN_CHECK(part.parents[row] >= kRootParent &&
                      part.parents[row] < row);
      FORETOKEN_CHECK(part.tokens[row] >= 0 &&
                      part.tokens[row] < options_.vocab_size);
      session.rows.push_back({part.tokens[row], part.parents[row]});
      const std::vector<TokenId> path = PathOf(session, row);
      FORETOKEN_CHECK(committed + static_cast<int64_t>(path.size()) <=
                      options_.max_positions);
      if (!IsOutput(part, row)) continue;
      if (part.tokens[row] == options_.poison ||
          (options_.broken_from > 0 && forwards_ >= options_.broken_from)) {
        return absl::DataLossError(absl::StrCat("session ", part.session,
                                                ": logits of row ", row,
                                                " are not numbers"));
      }
      std::vector<TokenId> whole = session.committed;
      whole.insert(whole.end(), path.begin(), path.end());
      ComputeLogits(whole);
      if (part.sampling != nullptr) {
        const uint64_t* const allowed =
            masks.empty() ? nullptr : masks[outputs.size()];
        outputs.push_back(
            part.sampling->Sample(logits_, path, allowed, scratch));
      } else {
        outputs.emplace_back().token = ArgMax(logits_);
      }
    }
  }
  FORETOKEN_CHECK(last_pass_rows_ <= options_.max_rows);
  return absl::OkStatus();
}

absl::Status FakeBackend::Commit(SessionId id, absl::Span<const int32_t> rows) {
  FORETOKEN_CHECK(sessions_.count(id) == 1);
  Session& session = sessions_[id];
  FORETOKEN_CHECK(session.may_commit);
  session.may_commit = false;
  std::vector<TokenId> tokens;
  int32_t at = kRootParent;
  for (const int32_t row : rows) {
    FORETOKEN_CHECK(session.rows[row].parent == at);
    tokens.push_back(session.rows[row].token);
    at = row;
  }
  session.committed.insert(session.committed.end(), tokens.begin(),
                           tokens.end());
  return cache_.Append(id, tokens);
}

absl::StatusOr<absl::Span<const float>> FakeBackend::Logits(SessionId id,
                                                            int32_t row) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() ||
      row >= static_cast<int32_t>(found->second.rows.size())) {
    return absl::NotFoundError(
        absl::StrCat("no row ", row, " of session ", id));
  }
  std::vector<TokenId> whole = found->second.committed;
  for (const TokenId token : PathOf(found->second, row)) whole.push_back(token);
  ComputeLogits(whole);
  return absl::MakeConstSpan(logits_);
}

absl::Status FakeBackend::States(SessionId id, int32_t first, int32_t count,
                                 absl::Span<float> states) {
  FORETOKEN_CHECK(sessions_.count(id) == 1);
  if (options_.before_states) options_.before_states();
  const Session& session = sessions_[id];
  // Its own rows are cut off from their context once they are committed.
  FORETOKEN_CHECK(session.may_commit);
  FORETOKEN_CHECK(first >= 0 && count >= 1 &&
                  first + count <= static_cast<int32_t>(session.rows.size()));
  FORETOKEN_CHECK(states.size() ==
                  static_cast<size_t>(count) * config_.d_model);
  for (int32_t r = 0; r < count; ++r) {
    std::vector<TokenId> whole = session.committed;
    for (const TokenId token : PathOf(session, first + r)) {
      whole.push_back(token);
    }
    std::vector<float> state = FakeLogits(whole, config_.d_model);
    if (whole.back() == options_.poison ||
        (options_.broken_from > 0 && forwards_ >= options_.broken_from)) {
      state[0] = std::numeric_limits<float>::quiet_NaN();
    }
    std::copy(state.begin(), state.end(), &states[r * config_.d_model]);
  }
  return absl::OkStatus();
}

}  // namespace foretoken::testing
