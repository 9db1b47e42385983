// KvCache: which page of KV memory holds what. Sessions, page tables, prefix
// reuse and eviction; the memory itself belongs to the backend.
//
// A page holds kKvPageTokens consecutive tokens of one session, all layers. A
// session's pages lie anywhere; its page table lists them in order. A page that
// is full enters the index of its cache scope under (page before it, its 32
// token ids), so equal prefixes chain through equal pages. Ids are compared
// themselves, never a hash alone. A session whose page turns out to be indexed
// already takes the indexed one: the two are equal bit for bit, because KV
// depends on the tokens of the path only.
//
// A page without a session stays indexed until memory is short; then the least
// recently used page that no other indexed page follows goes first.
//
// Source: paged KV after vLLM (arXiv:2309.06180, "PagedAttention"); the tree of
// cached prefixes after SGLang (arXiv:2312.07104, "RadixAttention").
// Owned by one thread.
#ifndef FORETOKEN_COMMON_INFER_KV_CACHE_H_
#define FORETOKEN_COMMON_INFER_KV_CACHE_H_

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/infer/backend.h"

namespace foretoken {

// Tokens of a page, and of an attention block: part of the numerics.
inline constexpr int32_t kKvPageTokens = 32;

class KvCache {
 public:
  struct Options {
    int64_t pages = 0;         // at least 1
    int64_t max_sessions = 0;  // at least 1
    bool prefix_reuse = true;  // off: every session computes its own pages
  };

  explicit KvCache(const Options& options);

  // See Backend for the contracts of these five.
  absl::StatusOr<OpenedSession> Open(absl::string_view scope,
                                     absl::Span<const TokenId> prompt);
  absl::Status Close(SessionId session);
  absl::StatusOr<int64_t> CommittedLength(SessionId session) const;
  absl::Status Reserve(SessionId session, int64_t length);
  KvUsage usage() const;

  // See Backend. copy(from, to, tokens) copies the KV of the first `tokens` of
  // a page that must not be written to, because the index holds it; nothing has
  // changed if it fails.
  absl::Status Truncate(
      SessionId session, int64_t length,
      absl::FunctionRef<absl::Status(int32_t, int32_t, int32_t)> copy);

  // Counts `tokens` as committed. Their KV must already lie in the pages that
  // Reserve gave for these positions (FORETOKEN_CHECK).
  absl::Status Append(SessionId session, absl::Span<const TokenId> tokens);

  // Page ids in order of position, reserved ones included; nullptr for an
  // unknown session. Valid until the next call that is not const.
  const std::vector<int32_t>* PageTable(SessionId session) const;

  // The number of sessions whose page tables list `page`.
  int32_t SessionsOf(int32_t page) const { return pages_[page].sessions; }

  // The pages that Open would find for `prompt` and that sessions list now:
  // they cost no room.
  std::vector<int32_t> PagesInUse(absl::string_view scope,
                                  absl::Span<const TokenId> prompt) const;

 private:
  using PageTokens = std::array<TokenId, kKvPageTokens>;

  // Name and users (sessions and indexed pages), where it does not move.
  using Scope = std::pair<const std::string, int64_t>;

  struct PrefixKey {
    const Scope* scope = nullptr;
    int32_t parent = -1;  // page id, -1 at the start
    PageTokens tokens{};
    friend bool operator==(const PrefixKey&, const PrefixKey&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const PrefixKey& key) {
      return H::combine(std::move(h), key.scope, key.parent, key.tokens);
    }
  };

  struct Page {
    int32_t sessions = 0;  // page tables that list it
    int32_t children = 0;  // indexed pages that follow it
    uint64_t last_used = 0;
    bool indexed = false;
    PrefixKey key;
  };

  struct Session {
    Scope* scope = nullptr;  // nullptr: shares nothing
    int64_t length = 0;
    std::vector<int32_t> pages;
    PageTokens tail{};  // tokens of the page that is not yet full
  };

  // Indexed pages that hold the first tokens of `prompt`, in order; at least
  // its last token is in none of them.
  std::vector<int32_t> FindPrefix(const Scope* scope,
                                  absl::Span<const TokenId> prompt) const;
  void ReleaseScope(const Scope* scope);
  // Lists `page` in another page table.
  void Reference(int32_t page);
  int32_t TakePage();
  void EvictOne();
  void RemoveFromIndex(int32_t page);
  void Unreference(int32_t page);
  void MarkEvictable(int32_t page);
  void IndexFullPage(Session& session, int64_t index);
  absl::Status UnknownSession(SessionId session) const;

  const Options options_;
  std::vector<Page> pages_;
  std::vector<int32_t> free_;
  int64_t cached_ = 0;  // indexed pages without a session
  // Those of them that no indexed page follows, oldest first.
  std::set<std::pair<uint64_t, int32_t>> evictable_;
  absl::flat_hash_map<PrefixKey, int32_t> index_;
  absl::node_hash_map<std::string, int64_t> scopes_;
  absl::flat_hash_map<SessionId, Session> sessions_;
  SessionId next_session_ = 1;
  uint64_t clock_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_KV_CACHE_H_
