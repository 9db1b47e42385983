#include "common/infer/kv_cache.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace foretoken {

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
    session.scope = ScopeIdFor(scope);
    ++scopes_[session.scope].users;
    PrefixKey key;
    key.scope = session.scope;
    const int64_t prompt_size = static_cast<int64_t>(prompt.size());
    // At least the last token is left to compute.
    while (session.length + kKvPageTokens < prompt_size) {
      std::copy_n(prompt.begin() + session.length, kKvPageTokens,
                  key.tokens.begin());
      const auto found = index_.find(key);
      if (found == index_.end()) break;
      Page& page = pages_[found->second];
      if (page.sessions++ == 0) {
        --cached_;
        evictable_.erase({page.last_used, found->second});
      }
      session.pages.push_back(found->second);
      session.length += kKvPageTokens;
      key.parent = found->second;
    }
  }
  OpenedSession opened;
  opened.session = next_session_++;
  opened.reused_tokens = session.length;
  sessions_.emplace(opened.session, std::move(session));
  return opened;
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
  if (session.scope != 0) ReleaseScope(session.scope);
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
  if (want - have > available) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "kv cache: session %d wants %d more pages for %d tokens, %d of %d are "
        "free",
        id, want - have, length, available, options_.pages));
  }
  for (int64_t i = have; i < want; ++i) session.pages.push_back(TakePage());
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
    if (session.length % kKvPageTokens == 0 && session.scope != 0) {
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

int64_t KvCache::ScopeIdFor(absl::string_view name) {
  const auto [it, added] =
      scope_ids_.try_emplace(std::string(name), next_scope_);
  if (added) {
    scopes_[next_scope_].name = it->first;
    ++next_scope_;
  }
  return it->second;
}

void KvCache::ReleaseScope(int64_t scope) {
  const auto found = scopes_.find(scope);
  FORETOKEN_CHECK(found != scopes_.end());
  if (--found->second.users > 0) return;
  scope_ids_.erase(found->second.name);
  scopes_.erase(found);
}

// The caller has checked that a page is free or evictable.
int32_t KvCache::TakePage() {
  if (free_.empty()) EvictOne();
  const int32_t page = free_.back();
  free_.pop_back();
  pages_[page] = Page();
  pages_[page].sessions = 1;
  return page;
}

void KvCache::EvictOne() {
  FORETOKEN_CHECK(!evictable_.empty());
  const int32_t id = evictable_.begin()->second;
  evictable_.erase(evictable_.begin());
  Page& page = pages_[id];
  const PrefixKey key = page.key;
  index_.erase(key);
  page.indexed = false;
  --cached_;
  free_.push_back(id);
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
    const int32_t shared = it->second;
    if (pages_[shared].sessions++ == 0) {
      --cached_;
      evictable_.erase({pages_[shared].last_used, shared});
    }
    session.pages[index] = shared;
    Unreference(own);
    return;
  }
  pages_[own].indexed = true;
  pages_[own].key = key;
  if (key.parent >= 0) ++pages_[key.parent].children;
  ++scopes_[key.scope].users;
}

absl::Status KvCache::UnknownSession(SessionId id) const {
  return absl::NotFoundError(absl::StrFormat("no session %d", id));
}

}  // namespace foretoken
