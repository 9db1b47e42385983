#include "common/engine/kv_session.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/infer/kv_cache.h"

namespace foretoken {

absl::Status KvSession::Open(Backend& backend, absl::string_view scope,
                             absl::Span<const TokenId> text, int64_t room,
                             SamplingParams sampling, int64_t prompt_length) {
  FORETOKEN_CHECK(!is_open());
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened,
                             backend.Open(scope, text));
  backend_ = &backend;
  id_ = opened.session;
  room_ = 0;
  // A session that finds no pages for its room is refused here, before it costs
  // a pass.
  const absl::Status reserved = Reserve(room);
  if (!reserved.ok()) {
    Close();
    return reserved;
  }
  sampling_.emplace(std::move(sampling), prompt_length,
                    backend.config().vocab_size);
  // Tokens found in the prefix cache are committed already: penalties must
  // count them.
  sampling_->Append(text.first(opened.reused_tokens));
  return absl::OkStatus();
}

void KvSession::Close() {
  if (!is_open()) return;
  const absl::Status closed = backend_->Close(id_);
  FORETOKEN_CHECK(closed.ok());  // opened here, closed once
  backend_ = nullptr;
  sampling_.reset();
}

absl::Span<const int32_t> KvSession::pages() const {
  return *backend_->kv_cache().PageTable(id_);
}

absl::Status KvSession::Reserve(int64_t length) {
  FORETOKEN_RETURN_IF_ERROR(backend_->Reserve(id_, length));
  room_ = std::max(room_, length);
  return absl::OkStatus();
}

absl::Status KvSession::Commit(absl::Span<const int32_t> rows,
                               absl::Span<const TokenId> text) {
  return Append(rows, text.subspan(length(), rows.size()));
}

absl::Status KvSession::Append(absl::Span<const int32_t> rows,
                               absl::Span<const TokenId> tokens) {
  FORETOKEN_CHECK(rows.size() == tokens.size());
  // Reserve first: it is the call that can fail, and nothing has changed yet
  // then.
  FORETOKEN_RETURN_IF_ERROR(
      backend_->Reserve(id_, length() + static_cast<int64_t>(tokens.size())));
  FORETOKEN_RETURN_IF_ERROR(backend_->Commit(id_, rows));
  sampling_->Append(tokens);
  return absl::OkStatus();
}

absl::Status KvSession::DropLast(absl::Span<const TokenId> tokens) {
  FORETOKEN_RETURN_IF_ERROR(
      backend_->Truncate(id_, length() - static_cast<int64_t>(tokens.size())));
  sampling_->DropLast(tokens);
  // Truncation has given back the room, too. Its pages are free to be taken
  // again, except one that was copied because others share it.
  if (!backend_->Reserve(id_, room_).ok()) room_ = length();
  return absl::OkStatus();
}

PassSession KvSession::Share() const {
  PassSession share;
  share.session = id_;
  share.sampling = &*sampling_;
  return share;
}

}  // namespace foretoken
