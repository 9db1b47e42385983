#include "services/trie_drafter/core/trie_sessions.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_factory.h"
#include "common/drafting/fused_drafter.h"
#include "services/trie_drafter/core/warm_record.h"

namespace foretoken::trie_drafter {
namespace {

// Phrases are stored in batches of this size, so that a session of many rounds
// does not write a record each.
constexpr size_t kPhrasesPerSave = 256;

// The cache scope that a request shares with others.
struct SharedScope {
  ScopeKey key;
  std::shared_ptr<ScopeMemory> memory;
};

std::unique_ptr<Drafter> MakeAuto(const TrieOptions& options,
                                  std::shared_ptr<const StaticPrior> prior,
                                  const ScopeMemory* scope) {
  FusedOptions fused;
  fused.prior = std::move(prior);
  if (scope != nullptr && scope->prior() != nullptr) {
    fused.scope_prior = scope->prior()->Get();
  }
  // Without a scope nothing may outlive the request, so there is no history to
  // read or to add to.
  fused.use_history = fused.keep_history = scope != nullptr;
  fused.history_tokens = static_cast<size_t>(options.scopes.history_tokens);
  if (scope != nullptr) fused.memory = scope->fused();
  return MakeFusedDrafter(fused);
}

}  // namespace

class TrieSessions::Session final : public DraftSession {
 public:
  // `drafter` is null if the session drafts nothing; `scope` is unset if it
  // shares nothing.
  Session(TrieSessions& owner, std::unique_ptr<Drafter> drafter,
          std::optional<SharedScope> scope, bool keeps_output,
          const DraftOpen& open, std::shared_ptr<DraftListener> listener)
      : owner_(owner),
        drafter_(std::move(drafter)),
        scope_(std::move(scope)),
        keeps_output_(keeps_output),
        listener_(std::move(listener)),
        length_(static_cast<int64_t>(open.tokens.size())) {
    // A replayed request opens in the middle of its output, which counts as
    // prompt: the previous session has added it to the history.
    if (drafter_ != nullptr) drafter_->StartRequest(open.tokens);
    UpdateBytes();
  }

  ~Session() override {
    // EndRequest adds the output to the scope's history, ScopeGrown then counts
    // it. The drafter goes before its bytes are returned, so that the account
    // never shows less than is held.
    if (drafter_ != nullptr) drafter_->EndRequest();
    if (scope_.has_value()) {
      EndOutput();
      SavePhrases();
      owner_.ScopeGrown(scope_->key);
    }
    drafter_.reset();
    owner_.Closed(bytes_);
  }

  void Ask(DraftRound round) override {
    // A listener is not called again after OnFailed.
    if (failed_) return;
    DraftAnswer answer;
    absl::Status status = Round(round, answer);
    if (status.ok()) {
      listener_->OnAnswer(std::move(answer));
    } else {
      failed_ = true;
      listener_->OnFailed(std::move(status));
    }
  }

 private:
  absl::Status Round(const DraftRound& round, DraftAnswer& answer) {
    const absl::Time start = owner_.clock_();
    FORETOKEN_RETURN_IF_ERROR(CheckFollows(length_, round));
    if (round.length > owner_.options_.max_context_tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("committed_length: ", round.length, ", want at most ",
                       owner_.options_.max_context_tokens));
    }
    length_ = round.length;
    Commit(round);
    answer.length = length_;
    // Committing a long text may have used up the budget: then the answer is
    // empty rather than late.
    if (drafter_ != nullptr && round.max_nodes > 0 &&
        owner_.clock_() - start < round.budget) {
      drafter_->Draft(std::min(round.max_nodes, owner_.options_.max_nodes),
                      answer.tree);
    }
    UpdateBytes();
    answer.draft_time = owner_.clock_() - start;
    return absl::OkStatus();
  }

  void Commit(const DraftRound& round) {
    if (drafter_ != nullptr) CommitRound(round, *drafter_);
    if (!scope_.has_value()) return;
    if (!round.phrases.empty()) {
      scope_->memory->AddPhrases(round.phrases);
      phrases_.insert(phrases_.end(), round.phrases.begin(),
                      round.phrases.end());
      if (phrases_.size() >= kPhrasesPerSave) SavePhrases();
    }
    if (!keeps_output_) return;
    output_.insert(output_.end(), round.committed.begin(),
                   round.committed.end());
    // Only the last kMaxRecordTokens are stored. Cutting at twice that size
    // moves each token once at most on average.
    if (output_.size() < 2 * kMaxRecordTokens) return;
    output_.erase(output_.begin(),
                  output_.end() - static_cast<ptrdiff_t>(kMaxRecordTokens));
  }

  // Gives the output to the scope's prior and to the store.
  void EndOutput() {
    if (output_.empty()) return;
    const std::shared_ptr<ScopePrior>& prior = scope_->memory->prior();
    if (prior != nullptr) {
      const ScopePrior::Added added = prior->Add(output_);
      if (added.due) owner_.compactor_->Submit(scope_->key, prior);
      owner_.SaveTexts(scope_->key, added.batch);
    }
    if (owner_.store_ == nullptr) return;
    owner_.store_->Save(scope_->key, RecordKind::kOutput, {std::move(output_)});
  }

  void SavePhrases() {
    if (owner_.store_ != nullptr && !phrases_.empty()) {
      owner_.store_->Save(scope_->key, RecordKind::kPhrases, phrases_);
    }
    phrases_.clear();
  }

  void UpdateBytes() {
    const int64_t now = drafter_ == nullptr
                            ? 0
                            : static_cast<int64_t>(drafter_->RequestBytes());
    if (now == bytes_) return;
    owner_.Resized(now - bytes_);
    bytes_ = now;
  }

  TrieSessions& owner_;
  std::unique_ptr<Drafter> drafter_;
  const std::optional<SharedScope> scope_;
  const bool keeps_output_;
  const std::shared_ptr<DraftListener> listener_;
  bool failed_ = false;
  int64_t length_;
  int64_t bytes_ = 0;
  std::vector<TokenId> output_;  // for prior and store, if keeps_output_
  std::vector<Phrase> phrases_;  // to be stored
};

TrieSessions::TrieSessions(const TrieOptions& options,
                           std::shared_ptr<const StaticPrior> prior,
                           WarmStore* store, TrieObserver& observer,
                           Clock clock)
    : options_(options),
      prior_(std::move(prior)),
      store_(store),
      observer_(observer),
      clock_(std::move(clock)),
      scopes_(std::make_shared<ScopeTable>(options.scopes)) {
  if (options_.scopes.prior.max_tokens == 0) return;
  compactor_ = std::make_shared<PriorCompactor>(
      [scopes = scopes_, observer_of = &observer_](const ScopeKey& key) {
        scopes->Compacted(key);
        observer_of->OnScopes(scopes->totals());
      });
}

TrieSessions::~TrieSessions() {
  // Texts wait in batches: store those that are not full. Sessions are gone by
  // now.
  for (const auto& [key, scope] : scopes_->All()) {
    if (scope->prior() != nullptr) SaveTexts(key, scope->prior()->TakeBatch());
  }
}

absl::StatusOr<std::unique_ptr<DraftSession>> TrieSessions::Open(
    DraftOpen open, std::shared_ptr<DraftListener> listener) {
  const int64_t tokens = static_cast<int64_t>(open.tokens.size());
  if (tokens < 1 || tokens > options_.max_context_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("token_ids: ", tokens, " tokens, want 1..",
                     options_.max_context_tokens));
  }
  const bool fused = open.mode.As<AutoOptions>() != nullptr;
  const bool ouroboros = open.mode.As<OuroborosOptions>() != nullptr;
  if (open.mode.info().service != "trie_drafter" && !ouroboros) {
    return absl::UnimplementedError(
        absl::StrCat("mode '", open.mode.name(),
                     "': trie_drafter neither drafts it nor takes its "
                     "phrases"));
  }
  std::unique_ptr<Drafter> drafter;
  // Before Admit: nothing may fail after it, since only a Session's destructor
  // gives the place back.
  if (!fused && !ouroboros) {
    FORETOKEN_ASSIGN_OR_RETURN(drafter, MakeDrafter(open.mode, {}));
  }
  FORETOKEN_RETURN_IF_ERROR(Admit());
  std::optional<SharedScope> scope;
  if (!open.cache_scope.empty() && (fused || ouroboros)) {
    const ScopeKey key =
        ScopeKey::Of(open.cache_scope, open.tokenizer_fingerprint);
    scope = SharedScope{key, FindScope(key)};
  }
  if (fused) {
    const ScopeMemory* memory = scope ? scope->memory.get() : nullptr;
    if (memory != nullptr) {
      observer_.OnLookup(Lookup::kHistory, memory->history_tokens() > 0);
    }
    drafter = MakeAuto(options_, prior_, memory);
  }
  // Output is kept only for a reader: the store or the prior.
  const bool keeps_output =
      fused && (store_ != nullptr || compactor_ != nullptr);
  return std::make_unique<Session>(*this, std::move(drafter), std::move(scope),
                                   keeps_output, open, std::move(listener));
}

std::vector<Phrase> TrieSessions::NewestPhrases(const PhraseQuery& query) {
  if (query.cache_scope.empty()) return {};
  const ScopeKey key =
      ScopeKey::Of(query.cache_scope, query.tokenizer_fingerprint);
  std::vector<Phrase> phrases =
      FindScope(key)->NewestPhrases(query.phrase_tokens, query.max_phrases);
  observer_.OnLookup(Lookup::kPool, !phrases.empty());
  return phrases;
}

std::unique_ptr<SharedPhrases::Fetch> TrieSessions::GetPhrases(
    const PhraseQuery& query, Done done) {
  done(NewestPhrases(query));
  return nullptr;
}

absl::Status TrieSessions::Admit() {
  // A soft limit: sessions that are open may still grow.
  const int64_t bytes = session_bytes_.load();
  if (bytes > options_.max_session_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("sessions hold ", bytes, " bytes of at most ",
                     options_.max_session_bytes));
  }
  // Add first and undo: two opens at once cannot both take the last place.
  const int64_t before = sessions_.fetch_add(1);
  if (before >= options_.max_sessions) {
    --sessions_;
    return absl::ResourceExhaustedError(absl::StrCat(
        "all ", options_.max_sessions, " drafting sessions are in use"));
  }
  observer_.OnSessions(1, 0);
  return absl::OkStatus();
}

void TrieSessions::Resized(int64_t delta_bytes) {
  session_bytes_ += delta_bytes;
  observer_.OnSessions(0, delta_bytes);
}

void TrieSessions::Closed(int64_t bytes) {
  session_bytes_ -= bytes;
  observer_.OnSessions(-1, -bytes);
  --sessions_;
}

std::shared_ptr<ScopeMemory> TrieSessions::FindScope(const ScopeKey& key) {
  ScopeTable::Found found = scopes_->FindOrCreate(key);
  if (!found.created) return found.memory;
  observer_.OnScopes(scopes_->totals());
  if (store_ == nullptr) return found.memory;
  // The callback runs on the store's thread, maybe after this object is gone:
  // it owns the table, refers weakly to the scope and the compactor, and the
  // observer outlives the store's calls.
  store_->Load(key, [key, scopes = scopes_, observer = &observer_,
                     compactor = std::weak_ptr<PriorCompactor>(compactor_),
                     memory = std::weak_ptr<ScopeMemory>(found.memory)](
                        StoredScope stored) {
    const std::shared_ptr<ScopeMemory> scope = memory.lock();
    if (scope == nullptr) return;  // evicted meanwhile
    if (scope->MergeStored(stored)) {
      const auto running = compactor.lock();
      if (running != nullptr) running->Submit(key, scope->prior());
    }
    scopes->Grown(key);
    observer->OnScopes(scopes->totals());
  });
  return found.memory;
}

void TrieSessions::SaveTexts(const ScopeKey& key,
                             const ScopePrior::Texts& batch) {
  if (store_ != nullptr && !batch.empty()) {
    store_->Save(key, RecordKind::kTexts, batch);
  }
}

void TrieSessions::ScopeGrown(const ScopeKey& key) {
  scopes_->Grown(key);
  observer_.OnScopes(scopes_->totals());
}

}  // namespace foretoken::trie_drafter
