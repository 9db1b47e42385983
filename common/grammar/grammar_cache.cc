#include "common/grammar/grammar_cache.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace foretoken::grammar {
namespace {

// Entry, index and holder of a grammar, however small it is: bounds the number
// of entries, and with it the search for the largest holder.
constexpr int64_t kEntryBytes = 1024;

CompileLimits LimitsOf(const GrammarCacheOptions& options) {
  CompileLimits limits;
  limits.source_bytes = options.max_constraint_bytes;
  return limits;
}

template <typename T>
int64_t BytesOf(const std::vector<T>& list) {
  return static_cast<int64_t>(list.capacity() * sizeof(T));
}

int64_t BytesOf(const std::vector<ObjectMember>& members) {
  auto bytes = static_cast<int64_t>(members.capacity() * sizeof(ObjectMember));
  for (const ObjectMember& member : members) bytes += BytesOf(member.needs);
  return bytes;
}

}  // namespace

int64_t GrammarBytes(const Grammar& grammar) {
  int64_t bytes = sizeof(Grammar) + grammar.regexes.bytes() +
                  BytesOf(grammar.terminals) + BytesOf(grammar.nonterminals) +
                  BytesOf(grammar.lists) + BytesOf(grammar.objects);
  for (const Grammar::Nonterminal& nonterminal : grammar.nonterminals) {
    bytes += BytesOf(nonterminal.alternatives);
    for (const std::vector<Symbol>& body : nonterminal.alternatives) {
      bytes += BytesOf(body);
    }
  }
  for (const ListRule& list : grammar.lists) bytes += BytesOf(list.first);
  for (const ObjectRule& object : grammar.objects) {
    bytes += BytesOf(object.members) + BytesOf(object.others);
  }
  return bytes;
}

GrammarCache::GrammarCache(const GrammarCacheOptions& options)
    : options_(options), limits_(LimitsOf(options)) {}

std::shared_ptr<const Grammar> GrammarCache::Find(
    const Constraint& constraint) {
  const std::string key = ConstraintKey(constraint);
  absl::MutexLock lock(&mu_);
  return FindLocked(key);
}

std::shared_ptr<const Grammar> GrammarCache::FindLocked(absl::string_view key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  std::list<Entry>& entries = found->second->holder->entries;
  entries.splice(entries.begin(), entries, found->second);
  return found->second->grammar;
}

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarCache::Get(
    const std::string& caller, const Constraint& constraint) {
  // Refused by its size: no key is made of it.
  if (static_cast<int64_t>(constraint.bytes()) > limits_.source_bytes) {
    return Compile(constraint, limits_);
  }
  std::string key = ConstraintKey(constraint);
  std::shared_ptr<Compilation> compilation;
  {
    absl::MutexLock lock(&mu_);
    if (auto grammar = FindLocked(key); grammar != nullptr) return grammar;
    // One compilation for equal constraints that come together; the others wait
    // for its result.
    std::shared_ptr<Compilation>& running = running_[key];
    if (running != nullptr) {
      compilation = running;  // the map's own goes with its end
      mu_.Await(absl::Condition(&compilation->done));
      return compilation->result;
    }
    running = compilation = std::make_shared<Compilation>();
    ++misses_;
  }
  // Without the lock: it may take seconds.
  auto result = Compile(constraint, limits_);
  absl::MutexLock lock(&mu_);
  // In one piece with Keep, so that a caller that comes next finds the grammar
  // or a running compilation.
  running_.erase(key);
  compilation->result = result;
  compilation->done = true;
  if (result.ok()) Keep(caller, std::move(key), *result);
  return result;
}

void GrammarCache::Keep(const std::string& caller, std::string key,
                        std::shared_ptr<const Grammar> grammar) {
  const int64_t bytes =
      kEntryBytes + static_cast<int64_t>(key.size()) + GrammarBytes(*grammar);
  const int64_t most = options_.cache_bytes / 2;
  // Half at most for one caller, so one entry larger than that is never kept.
  if (bytes > most) return;
  if (const auto own = holders_.find(caller); own != holders_.end()) {
    // The holder goes with its last entry.
    for (Holder* holder = &own->second; holder->bytes + bytes > most;) {
      const bool last = holder->entries.size() == 1;
      DropOldest(*holder);
      if (last) break;
    }
  }
  // From the holder with the most bytes: a caller that fills the cache
  // displaces its own grammars first.
  while (bytes_ + bytes > options_.cache_bytes) DropOldest(Largest());
  Holder& holder = holders_[caller];
  holder.name = caller;
  holder.entries.push_front(
      {std::move(key), std::move(grammar), bytes, &holder});
  holder.bytes += bytes;
  bytes_ += bytes;
  index_[holder.entries.front().key] = holder.entries.begin();
}

void GrammarCache::DropOldest(Holder& holder) {
  FORETOKEN_CHECK(!holder.entries.empty());
  const Entry& oldest = holder.entries.back();
  holder.bytes -= oldest.bytes;
  bytes_ -= oldest.bytes;
  index_.erase(oldest.key);
  holder.entries.pop_back();
  if (holder.entries.empty()) {
    // Moved out first: erasing the holder destroys the name.
    const std::string name = std::move(holder.name);
    holders_.erase(name);
  }
}

GrammarCache::Holder& GrammarCache::Largest() {
  const auto largest = std::max_element(
      holders_.begin(), holders_.end(), [](const auto& a, const auto& b) {
        return a.second.bytes < b.second.bytes;
      });
  FORETOKEN_CHECK(largest != holders_.end());
  return largest->second;
}

int64_t GrammarCache::bytes() const {
  absl::MutexLock lock(&mu_);
  return bytes_;
}

int64_t GrammarCache::size() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(index_.size());
}

int64_t GrammarCache::misses() const {
  absl::MutexLock lock(&mu_);
  return misses_;
}

}  // namespace foretoken::grammar
