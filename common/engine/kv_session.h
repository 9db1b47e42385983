// KvSession: an engine session's KV in the backend, and the sampling state of
// the same text.
//
// Closed at first; destruction closes it. Owned by the engine thread.
#ifndef FORETOKEN_COMMON_ENGINE_KV_SESSION_H_
#define FORETOKEN_COMMON_ENGINE_KV_SESSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/infer/backend.h"
#include "common/sampling/sampler.h"

namespace foretoken {

class KvSession {
 public:
  KvSession() = default;
  ~KvSession() { Close(); }
  KvSession(KvSession&& other) noexcept { *this = std::move(other); }
  KvSession& operator=(KvSession&& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(id_, other.id_);
    std::swap(room_, other.room_);
    std::swap(sampling_, other.sampling_);
    return *this;
  }

  // Opens `text` with room for `room` tokens in all. Tokens that the prefix
  // cache of `scope` holds are committed at once; the rest must be computed.
  // `text` starts with `prompt_length` tokens of prompt. ResourceExhausted,
  // with nothing changed, where sessions or pages are short. `backend` must
  // outlive the object.
  absl::Status Open(Backend& backend, absl::string_view scope,
                    absl::Span<const TokenId> text, int64_t room,
                    SamplingParams sampling, int64_t prompt_length);
  // Releases everything; no effect if closed.
  void Close();

  bool is_open() const { return backend_ != nullptr; }

  // Tokens committed; 0 if closed.
  int64_t length() const { return is_open() ? sampling_->length() : 0; }

  // Tokens that have room in the cache; 0 if closed.
  int64_t room() const { return is_open() ? room_ : 0; }

  // The calls below require an open session.

  // Pages of the backend's cache that the session lists, reserved ones
  // included; valid until the next call that is not const.
  absl::Span<const int32_t> pages() const;

  // As Backend::Reserve.
  absl::Status Reserve(int64_t length);

  // Commits `rows` of the last pass, which hold the next tokens of `text`.
  absl::Status Commit(absl::Span<const int32_t> rows,
                      absl::Span<const TokenId> text);

  // Commits `rows` of the last pass, which hold `tokens`. ResourceExhausted,
  // with nothing changed, if pages are short.
  absl::Status Append(absl::Span<const int32_t> rows,
                      absl::Span<const TokenId> tokens);

  // Drops the last tokens, `tokens`, which must be output, and the uncommitted
  // rows of the last pass; room() stays. As Backend::Truncate.
  absl::Status DropLast(absl::Span<const TokenId> tokens);

  // As Backend::States.
  absl::Status States(int32_t first, int32_t count,
                      absl::Span<float> states) const {
    return backend_->States(id_, first, count, states);
  }

  // This session's share of a pass, without rows.
  PassSession Share() const;

  void set_logprobs(int32_t logprobs) { sampling_->set_logprobs(logprobs); }
  void set_candidates(int32_t candidates) {
    sampling_->set_candidates(candidates);
  }

 private:
  Backend* backend_ = nullptr;
  SessionId id_ = -1;  // the backend's
  int64_t room_ = 0;
  std::optional<SamplingState> sampling_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_ENGINE_KV_SESSION_H_
