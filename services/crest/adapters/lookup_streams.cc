#include "services/crest/adapters/lookup_streams.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "services/crest/adapters/lookup_messages.h"

namespace foretoken::crest {

class LookupStreams::Stream final
    : public rpc::BidiStream<v1::CrestLookupRequest, v1::CrestLookupResponse> {
 public:
  Stream(rpc::StreamServer& server, LookupStreams& owner)
      : BidiStream(server), owner_(owner) {}

 private:
  struct Slot {
    bool ready = false;
    absl::Status status;
    v1::CrestLookupResponse response;
  };

  void OnMessage(v1::CrestLookupRequest& request) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    slots_.emplace_back();
    slots_.back().response.set_sequence(request.sequence());
    const absl::Status status = LookUp(request, slots_.back());
    if (!status.ok()) Fail(slots_.back(), status);
    SendReady();
  }

  void OnHalfClose() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Close(absl::OkStatus());
  }
  void OnDrain() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Close(server_.CheckNotDraining());
  }
  void OnClosed(const absl::Status&) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // Ids of look-ups that are still under way fall below first_, so that their
    // answers are dropped.
    first_ += slots_.size();
    slots_.clear();
  }
  bool CanRead() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !closing_.has_value() &&
           slots_.size() + unsent() <
               static_cast<size_t>(owner_.options_.max_pending);
  }
  // Logs only errors of a caller's configuration; others are counted.
  std::string LogName(const absl::Status& status) const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
                   absl::IsFailedPrecondition(status)
               ? "lookup stream"
               : "";
  }

  absl::Status LookUp(const v1::CrestLookupRequest& request, Slot& slot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Time start = MonotonicNow();
    FORETOKEN_RETURN_IF_ERROR(
        CheckRequest(request, owner_.options_.max_tree_nodes));
    FORETOKEN_ASSIGN_OR_RETURN(const Datastore* datastore,
                               owner_.datastores_.Find(request.datastore()));
    FORETOKEN_ASSIGN_OR_RETURN(
        const std::shared_ptr<const ServedVersion> served,
        datastore->Serving());
    if (served == nullptr) {  // an empty datastore
      slot.ready = true;
      owner_.metrics_.LookedUpInMemory(0, MonotonicNow() - start);
      return absl::OkStatus();
    }
    FORETOKEN_RETURN_IF_ERROR(
        CheckTokenizer(served->info.meta, request.tokenizer_fingerprint()));
    const absl::Span<const TokenId> context(request.context().data(),
                                            request.context_size());
    if (served->in_memory()) {
      const int n = served->Lookup(context, request.max_nodes(), found_);
      FillResponse(n, found_, request.max_nodes(), served->info.version,
                   slot.response);
      slot.ready = true;
      owner_.metrics_.LookedUpInMemory(n, MonotonicNow() - start);
      return absl::OkStatus();
    }
    return server_.WithRetryHint(served->rows->Submit(
        std::vector<TokenId>(context.begin(), context.end()),
        // `self` keeps the stream alive until the worker has answered.
        [this, self = shared_from_this(), id = first_ + slots_.size() - 1,
         start, max_nodes = request.max_nodes(),
         version = served->info.version](const BatchedSource::Query& query) {
          OnAnswer(id, start, max_nodes, version, query);
        }));
  }

  // Called on the row worker's thread.
  void OnAnswer(uint64_t id, absl::Time start, int max_nodes, int64_t version,
                const BatchedSource::Query& query) {
    absl::MutexLock lock(&mu_);
    if (query.n.ok()) {
      owner_.metrics_.LookedUpInPostgres(*query.n, query.cached,
                                         MonotonicNow() - start);
    }
    if (id < first_) return;  // the stream has ended
    Slot& slot = slots_[id - first_];
    if (query.n.ok()) {
      slot.ready = true;
      FillResponse(*query.n, query.tree, max_nodes, version, slot.response);
    } else {
      Fail(slot, query.n.status());
    }
    SendReady();
    Continue();
  }

  void Fail(Slot& slot, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    slot.ready = true;
    slot.status = status;
    if (!closing_.has_value()) closing_ = status;
  }

  // Stops reading; `status` follows the answers to the requests read so far.
  void Close(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!closing_.has_value()) closing_ = std::move(status);
    SendReady();
  }

  // Sends all answers that are next in order; ends the stream after the last.
  void SendReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (!slots_.empty() && slots_.front().ready) {
      // In order of the requests: an answer waits for those before it.
      const absl::Status status = slots_.front().status;
      if (!status.ok()) {
        owner_.metrics_.LookupFailed();
        // Answers to later requests are dropped: a failure ends the stream.
        EndAfterSends(status);
        return;
      }
      Send(std::move(slots_.front().response));
      slots_.pop_front();
      ++first_;
    }
    if (slots_.empty() && closing_.has_value()) EndAfterSends(*closing_);
  }

  LookupStreams& owner_;
  CrestTree found_ ABSL_GUARDED_BY(mu_);  // by the last look-up in memory
  std::deque<Slot> slots_ ABSL_GUARDED_BY(mu_);  // read, not answered
  uint64_t first_ ABSL_GUARDED_BY(mu_) = 0;      // id of the first slot
  std::optional<absl::Status> closing_ ABSL_GUARDED_BY(mu_);
};

LookupStreams::Reactor* LookupStreams::Start(
    grpc::CallbackServerContext* context) {
  return streams_.Start<Stream>(context, *this);
}

}  // namespace foretoken::crest
