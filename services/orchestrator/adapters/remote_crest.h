// RemoteCrest: look-ups in a datastore of the crest service, over one Lookup
// stream. Nothing is kept there: a lost stream is opened again, no more.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REMOTE_CREST_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REMOTE_CREST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "foretoken/v1/crest.pb.h"
#include "services/orchestrator/adapters/remote_source.h"

namespace foretoken::orchestrator {

class RemoteCrest final
    : public RemoteSource<v1::CrestLookupRequest, v1::CrestLookupResponse> {
 public:
  struct Options {
    std::string datastore;
    std::string tokenizer_fingerprint;  // raw; empty: not known
    Call::Method method;
  };

  // `peer` must outlive the object.
  RemoteCrest(Options options, DraftPeer& peer);
  ~RemoteCrest() override;

  DrafterId id() const override { return DrafterId::kCrest; }
  void Start(const DraftOpen& open) override;
  void Ask(const DraftRound& round) override;

 protected:
  std::shared_ptr<Call> Dial() override;
  Answer Parse(v1::CrestLookupResponse& message, SourceDraft& draft) override;

 private:
  const Options options_;
  std::vector<TokenId> tail_;  // the last tokens of the text
  uint64_t sequence_ = 0;      // of the last ask
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REMOTE_CREST_H_
