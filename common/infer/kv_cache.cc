#include "common/infer/kv_cache.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace foretoken {

KvUsage Backend::kv_usage() const { return kv_cache().usage(); }

absl::Status Backend::States(SessionId, int32_t, int32_t, absl::Span<float>) {
  return absl::UnimplementedError("this backend keeps no states");
}

KvCache::KvCache(const Options& options)
    : options_(options), pages_(options.pages) {
  FORETOKEN_CHECK(options.pages >= 1 && options.max_sessions >= 1);
  // Lowest ids first: memory is touched only as far as it is needed.
  free_.reserve(options.pages);
  for (int64_t i = options.pages - 1; i >= 0; --i) {
    free_.push_back(static_cast<int32_t>(i));
  }
}

absl::StatusOr<OpenedSession> KvCache::Open(absl::string_view scope,
                                            absl::Span<const TokenId> prompt) {
  if (static_cast<int64_t>(sessions_.size()) >= options_.max_sessions) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "kv cache: all %d sessions are open", options_.max_sessions));
  }
  Session session;
  if (options_.prefix_reuse && !scope.empty()) {
    session.scope = &*scopes_.try_emplace(std::string(scope)).first;
    // One for this session; IndexFullPage adds one for each page, so that the
    // scope outlives its sessions while pages name it.
    ++session.scope->second;
    session.pages = FindPrefix(session.scope, prompt);
    for (const int32_t page : session.pages) Reference(page);
    session.length = std::ssize(session.pages) * kKvPageTokens;
  }
  OpenedSession opened;
  opened.session = next_session_++;
  opened.reused_tokens = session.length;
  sessions_.emplace(opened.session, std::move(session));
  return opened;
}

std::vector<int32_t> KvCache::FindPrefix(
    const Scope* scope, absl::Span<const TokenId> prompt) const {
  std::vector<int32_t> pages;
  PrefixKey key;
  // The key has scope, parent page and tokens: equal tokens after different
  // texts, or of other scopes, are different pages.
  key.scope = scope;
  // A prompt of whole pages leaves its last one to compute.
  for (; prompt.size() > kKvPageTokens; prompt.remove_prefix(kKvPageTokens)) {
    std::copy_n(prompt.begin(), kKvPageTokens, key.tokens.begin());
    const auto found = index_.find(key);
    if (found == index_.end()) break;
    pages.push_back(found->second);
    key.parent = found->second;
  }
  return pages;
}

std::vector<int32_t> KvCache::PagesInUse(
    absl::string_view scope, absl::Span<const TokenId> prompt) const {
  const auto found = scopes_.find(scope);
  if (!options_.prefix_reuse || found == scopes_.end()) return {};
  std::vector<int32_t> pages = FindPrefix(&*found, prompt);
  // Pages without a session can be evicted at any time, so they save no room.
  std::erase_if(pages, [&](int32_t page) { return SessionsOf(page) == 0; });
  return pages;
}

absl::Status KvCache::Close(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return UnknownSession(id);
  Session& session = found->second;
  // Last page first, so that a prefix never looks older than what follows it.
  for (auto page = session.pages.rbegin(); page != session.pages.rend();
       ++page) {
    Unreference(*page);
  }
  if (session.scope != nullptr) ReleaseScope(session.scope);
  sessions_.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> KvCache::CommittedLength(SessionId id) const {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return UnknownSession(id);
  return found->second.length;
}

absl::Status KvCache::Reserve(SessionId id, int64_t length) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return UnknownSession(id);
  Session& session = found->second;
  const int64_t have = static_cast<int64_t>(session.pages.size());
  const int64_t want = length <= 0 ? 0 : (length - 1) / kKvPageTokens + 1;
  const int64_t available = static_cast<int64_t>(free_.size()) + cached_;
  // Checked before any page is taken: the reservation is whole or not made.
  if (want - have > available) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "kv cache: session %d wants %d more pages for %d tokens, %d of %d are "
        "free",
        id, want - have, length, available, options_.pages));
  }
  for (int64_t i = have; i < want; ++i) session.pages.push_back(TakePage());
  return absl::OkStatus();
}

absl::Status KvCache::Truncate(
    SessionId id, int64_t length,
    absl::FunctionRef<absl::Status(int32_t, int32_t, int32_t)> copy) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return UnknownSession(id);
  Session& session = found->second;
  if (length < 0 || length > session.length) {
    return absl::InvalidArgumentError(
        absl::StrFormat("session %d: truncation to %d tokens, want 0..%d", id,
                        length, session.length));
  }
  // The pages that are kept, the last of them perhaps in part.
  const size_t pages = (length + kKvPageTokens - 1) / kKvPageTokens;
  const int32_t kept = static_cast<int32_t>(length % kKvPageTokens);
  const int32_t cut = kept == 0 ? -1 : session.pages[pages - 1];
  int32_t own = cut;  // what the session keeps in the place of `cut`
  if (cut >= 0 && pages_[cut].indexed) {
    // The next token will be written into this page, so it must not be one that
    // others read or find in the index.
    const PageTokens tokens = pages_[cut].key.tokens;
    // This session is the page's only reader and no page follows it: removing
    // it from the index makes it the session's own.
    if (pages_[cut].sessions == 1 && pages_[cut].children == 0) {
      RemoveFromIndex(cut);
    } else {
      if (free_.empty() && cached_ == 0) {
        return absl::ResourceExhaustedError(absl::StrFormat(
            "kv cache: session %d wants a page to be truncated to %d tokens, "
            "none of %d is free",
            id, length, options_.pages));
      }
      own = TakePage();
      if (absl::Status copied = copy(cut, own, kept); !copied.ok()) {
        // `own` is not indexed, so this returns it to the free pages; the
        // session is unchanged.
        Unreference(own);
        return copied;
      }
    }
    // Append completes this page later and needs its first tokens for the key.
    session.tail = tokens;
  }
  session.length = length;
  // Last page first, as in Close.
  for (; session.pages.size() > pages; session.pages.pop_back()) {
    Unreference(session.pages.back());
  }
  if (own != cut) {
    session.pages.back() = own;
    // After the copy: until now the reference kept the page from being evicted.
    Unreference(cut);
  }
  return absl::OkStatus();
}

absl::Status KvCache::Append(SessionId id, absl::Span<const TokenId> tokens) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return UnknownSession(id);
  Session& session = found->second;
  FORETOKEN_CHECK(session.length + static_cast<int64_t>(tokens.size()) <=
                  static_cast<int64_t>(session.pages.size()) * kKvPageTokens);
  for (const TokenId token : tokens) {
    session.tail[session.length % kKvPageTokens] = token;
    ++session.length;
    // A page is indexed once it is full, since only whole pages are shared.
    if (session.length % kKvPageTokens == 0 && session.scope != nullptr) {
      IndexFullPage(session, session.length / kKvPageTokens - 1);
    }
  }
  return absl::OkStatus();
}

const std::vector<int32_t>* KvCache::PageTable(SessionId id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : &found->second.pages;
}

KvUsage KvCache::usage() const {
  KvUsage usage;
  usage.pages_total = options_.pages;
  usage.pages_free = static_cast<int64_t>(free_.size()) + cached_;
  usage.pages_cached = cached_;
  usage.sessions = static_cast<int64_t>(sessions_.size());
  return usage;
}

void KvCache::ReleaseScope(const Scope* scope) {
  const auto found = scopes_.find(scope->first);
  if (--found->second == 0) scopes_.erase(found);
}

void KvCache::Reference(int32_t id) {
  // Already in use: it is neither cached nor evictable.
  if (pages_[id].sessions++ > 0) return;
  --cached_;
  // By the key under which it was entered: last_used does not change while a
  // page is evictable.
  evictable_.erase({pages_[id].last_used, id});
}

// The caller has checked that a page is free or evictable.
int32_t KvCache::TakePage() {
  if (free_.empty()) EvictOne();
  const int32_t page = free_.back();
  free_.pop_back();
  // Forgets the key of its former tokens.
  pages_[page] = Page();
  pages_[page].sessions = 1;
  return page;
}

void KvCache::EvictOne() {
  FORETOKEN_CHECK(!evictable_.empty());
  const int32_t id = evictable_.begin()->second;
  evictable_.erase(evictable_.begin());
  --cached_;
  free_.push_back(id);
  RemoveFromIndex(id);
}

// Invariant: an indexed page is in evictable_ exactly if no session lists it
// and no indexed page follows it. Evicting a page before its children would
// leave them in the index under the id of a page that now holds other tokens.
// So the parent becomes evictable when its last child leaves, here, or its last
// session, in Unreference, whichever is later. The parent is still indexed: it
// has had a child until now. The caller takes `id` itself out of evictable_.
void KvCache::RemoveFromIndex(int32_t id) {
  const PrefixKey key = pages_[id].key;
  index_.erase(key);
  pages_[id].indexed = false;
  if (key.parent >= 0) {
    Page& parent = pages_[key.parent];
    if (--parent.children == 0 && parent.sessions == 0) {
      MarkEvictable(key.parent);
    }
  }
  ReleaseScope(key.scope);
}

void KvCache::Unreference(int32_t id) {
  Page& page = pages_[id];
  if (--page.sessions > 0) return;
  if (!page.indexed) {
    free_.push_back(id);
    return;
  }
  ++cached_;
  // The order of eviction is the order of release, by a counter: time has no
  // resolution to rely on.
  page.last_used = ++clock_;
  if (page.children == 0) MarkEvictable(id);
}

void KvCache::MarkEvictable(int32_t id) {
  evictable_.emplace(pages_[id].last_used, id);
}

void KvCache::IndexFullPage(Session& session, int64_t index) {
  PrefixKey key;
  key.scope = session.scope;
  key.parent = index == 0 ? -1 : session.pages[index - 1];
  key.tokens = session.tail;
  const int32_t own = session.pages[index];
  const auto [it, added] = index_.try_emplace(key, own);
  if (!added) {
    // Another session of the scope was first: share its page.
    Reference(it->second);
    session.pages[index] = it->second;
    Unreference(own);
    return;
  }
  pages_[own].indexed = true;
  pages_[own].key = key;
  if (key.parent >= 0) ++pages_[key.parent].children;
  // Released by RemoveFromIndex.
  ++session.scope->second;
}

absl::Status KvCache::UnknownSession(SessionId id) const {
  return absl::NotFoundError(absl::StrFormat("no session %d", id));
}

}  // namespace foretoken
