#include "services/crest/adapters/lookup_streams.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "services/crest/adapters/lookup_messages.h"

namespace foretoken::crest {
namespace {

absl::Status Draining() {
  return absl::UnavailableError("the server is draining: ask another");
}

}  // namespace

// gRPC keeps the reactor until OnDone; a row worker may still hold it after
// that, so that the object owns itself until OnDone and workers share it.
class LookupStreams::Stream final
    : public LookupStreams::Reactor,
      public std::enable_shared_from_this<Stream> {
 public:
  static Stream* Start(LookupStreams& owner) {
    std::shared_ptr<Stream> stream(new Stream(owner));
    absl::MutexLock lock(&stream->mu_);
    stream->self_ = stream;
    const absl::Status admitted = owner.Admit(stream.get());
    stream->admitted_ = admitted.ok();
    if (admitted.ok()) {
      stream->first_message_.Start(owner.options_.streams.first_message_time,
                                   stream);
    } else {
      stream->final_ = admitted;
    }
    stream->Advance();
    return stream.get();
  }

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    reading_ = false;
    if (!std::exchange(spoken_, true)) first_message_.Stop();
    if (!ok) {
      End(absl::OkStatus());
    } else if (!final_.has_value()) {
      Take();
    }
    Advance();
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) Drop(absl::CancelledError("the client has gone"));
    Advance();
  }

  void OnCancel() override {
    absl::MutexLock lock(&mu_);
    Drop(absl::CancelledError("the client has gone"));
    Advance();
  }

  void OnDone() override {
    if (admitted_) owner_.Leave(this);
    const std::shared_ptr<Stream> last = std::move(self_);
  }

  void Drain() {
    absl::MutexLock lock(&mu_);
    End(Draining());
    Advance();
  }

  void OnSilence(const absl::Status& status) {
    absl::MutexLock lock(&mu_);
    if (spoken_) return;
    End(status);
    Advance();
  }

 private:
  struct Slot {
    bool ready = false;
    absl::Status status;
    v1::CrestLookupResponse response;
  };

  explicit Stream(LookupStreams& owner) : owner_(owner) {}

  // No further requests; `status` follows the answers to those taken.
  void End(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!final_.has_value()) final_ = std::move(status);
  }

  // Ends at once: what has not been written goes.
  void Drop(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    first_ += slots_.size();
    slots_.clear();
    final_ = std::move(status);
  }

  // Answers request_ or hands it on.
  void Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    slots_.emplace_back();
    slots_.back().response.set_sequence(request_.sequence());
    const absl::Status status = LookUp(slots_.back());
    if (!status.ok()) {
      slots_.back().ready = true;
      slots_.back().status = status;
      End(status);
    }
  }

  absl::Status LookUp(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Time start = absl::Now();
    FORETOKEN_RETURN_IF_ERROR(
        CheckRequest(request_, owner_.options_.max_tree_nodes));
    FORETOKEN_ASSIGN_OR_RETURN(const Datastore* datastore,
                               owner_.datastores_.Find(request_.datastore()));
    const std::shared_ptr<const ServedVersion> served = datastore->current();
    if (served == nullptr) {
      const absl::Status state = datastore->state();
      // It may have begun to serve just now.
      return state.ok() ? absl::UnavailableError("try again") : state;
    }
    FORETOKEN_RETURN_IF_ERROR(CheckFingerprint(request_, served->info.meta));
    const absl::Span<const TokenId> context(request_.context().data(),
                                            request_.context_size());
    if (served->index != nullptr) {
      const int n = served->index->Lookup(context, found_);
      FillResponse(n, found_, request_.max_nodes(), served->info.version,
                   slot.response);
      slot.ready = true;
      owner_.metrics_.LookedUpInMemory(n, absl::Now() - start);
      return absl::OkStatus();
    }
    const absl::Status submitted = served->rows->Submit(
        std::vector<TokenId>(context.begin(), context.end()),
        [self = shared_from_this(), id = first_ + slots_.size() - 1, start,
         max_nodes = request_.max_nodes(),
         version = served->info.version](const BatchedSource::Query& query) {
          self->OnAnswer(id, start, max_nodes, version, query);
        });
    return absl::IsResourceExhausted(submitted)
               ? rpc::WithRetryAfter(submitted,
                                     owner_.options_.streams.retry_after)
               : submitted;
  }

  // From the row worker's thread.
  void OnAnswer(uint64_t id, absl::Time start, int max_nodes, int64_t version,
                const BatchedSource::Query& query) {
    absl::MutexLock lock(&mu_);
    if (query.n.ok()) {
      owner_.metrics_.LookedUpInPostgres(*query.n, query.cached,
                                         absl::Now() - start);
    }
    if (id < first_) return;  // dropped
    Slot& slot = slots_[id - first_];
    slot.ready = true;
    slot.status = query.n.status();
    if (query.n.ok()) {
      FillResponse(*query.n, query.tree, max_nodes, version, slot.response);
    } else {
      End(slot.status);
    }
    Advance();
  }

  // Starts the next write, the next read, or the end, where one is due.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_) return;
    if (!writing_ && !slots_.empty() && slots_.front().ready) {
      if (slots_.front().status.ok()) {
        response_ = std::move(slots_.front().response);
        slots_.pop_front();
        ++first_;
        writing_ = true;
        StartWrite(&response_);
      } else {
        owner_.metrics_.LookupFailed();
        Drop(slots_.front().status);
      }
    }
    if (final_.has_value()) {
      if (writing_ || !slots_.empty()) return;
      finished_ = true;
      LogEnd();
      Finish(rpc::ToGrpcStatus(*final_));
    } else if (!reading_ &&
               static_cast<int>(slots_.size()) < owner_.options_.max_pending) {
      reading_ = true;
      StartRead(&request_);
    }
  }

  // Faults of a caller's configuration; the rest is daily life and counted.
  void LogEnd() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (absl::IsInvalidArgument(*final_) || absl::IsNotFound(*final_) ||
        absl::IsFailedPrecondition(*final_)) {
      FORETOKEN_LOG(kWarning, "lookup stream ended: ", final_->ToString());
    }
  }

  LookupStreams& owner_;
  bool admitted_ = false;
  rpc::FirstMessageTimer first_message_;

  absl::Mutex mu_;
  v1::CrestLookupRequest request_;
  v1::CrestLookupResponse response_;             // being written
  CrestTree found_ ABSL_GUARDED_BY(mu_);         // scratch
  std::deque<Slot> slots_ ABSL_GUARDED_BY(mu_);  // taken, not written
  uint64_t first_ ABSL_GUARDED_BY(mu_) = 0;      // id of the first slot
  std::optional<absl::Status> final_ ABSL_GUARDED_BY(mu_);
  bool spoken_ ABSL_GUARDED_BY(mu_) = false;  // it was asked, or ended
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<Stream> self_;
};

LookupStreams::LookupStreams(const LookupOptions& options,
                             const Datastores& datastores,
                             CrestMetrics& metrics)
    : options_(options), datastores_(datastores), metrics_(metrics) {}

LookupStreams::~LookupStreams() = default;

absl::Status LookupStreams::Admit(Stream* stream) {
  absl::MutexLock lock(&mu_);
  if (draining_) return Draining();
  if (static_cast<int>(streams_.size()) >= options_.streams.max_streams) {
    return rpc::WithRetryAfter(
        absl::ResourceExhaustedError(absl::StrCat(
            "all ", options_.streams.max_streams, " streams are in use")),
        options_.streams.retry_after);
  }
  streams_.insert(stream);
  metrics_.SetStreams(static_cast<int>(streams_.size()));
  return absl::OkStatus();
}

void LookupStreams::Leave(Stream* stream) {
  absl::MutexLock lock(&mu_);
  streams_.erase(stream);
  metrics_.SetStreams(static_cast<int>(streams_.size()));
}

LookupStreams::Reactor* LookupStreams::Start() { return Stream::Start(*this); }

void LookupStreams::Drain() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    absl::MutexLock lock(&mu_);
    draining_ = true;
    for (Stream* stream : streams_)
      streams.push_back(stream->shared_from_this());
  }
  for (const auto& stream : streams) stream->Drain();
}

bool LookupStreams::Idle() const {
  absl::MutexLock lock(&mu_);
  return streams_.empty();
}

}  // namespace foretoken::crest
