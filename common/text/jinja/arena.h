// Arena: scopes, macros and namespaces of one rendering. They may point to each
// other in circles; all live until the rendering ends.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_ARENA_H_
#define FORETOKEN_COMMON_TEXT_JINJA_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

// A variable of a scope, with its place in an index.
inline constexpr size_t kVariableBytes = 64;

// Variables of a block, and those of the blocks around it.
struct Scope {
  Scope* parent = nullptr;
  // Names are those of the syntax tree or of the caller, which outlive it.
  absl::flat_hash_map<absl::string_view, Value> variables;
  bool captured = false;  // a macro defined inside refers to it

  void Set(absl::string_view name, Value value, Budget& budget) {
    const auto [variable, added] = variables.try_emplace(name);
    // A scope that no macro refers to is used again after its block.
    budget.SpendQuietly(ByteSteps(name.size()),
                        added && captured ? kVariableBytes : 0);
    variable->second = std::move(value);
  }
  // Here or further out; nullptr: none. Stands until the next Set.
  const Value* Find(absl::string_view name, Budget& budget) const {
    int64_t scopes = 0;
    const Value* found = nullptr;
    for (const Scope* scope = this; scope != nullptr && found == nullptr;
         scope = scope->parent) {
      const auto variable = scope->variables.find(name);
      if (variable != scope->variables.end()) found = &variable->second;
      ++scopes;
    }
    budget.SpendQuietly(scopes / 8 + scopes * ByteSteps(name.size()));
    return found;
  }
};

struct Macro {
  const Stmt* definition = nullptr;
  Scope* scope = nullptr;  // where it was defined
};

class Arena {
 public:
  Scope* NewScope(Scope* parent) {
    Scope* scope = nullptr;
    if (free_.empty()) {
      scope = &scopes_.emplace_back();
    } else {
      scope = free_.back();
      free_.pop_back();
    }
    scope->parent = parent;
    return scope;
  }
  // Ends a block; its scope is used again unless a macro refers to it.
  void Release(Scope* scope) {
    if (scope->captured) return;
    scope->variables.clear();
    free_.push_back(scope);
  }
  Macro* NewMacro(const Stmt* definition, Scope* scope) {
    for (Scope* s = scope; s != nullptr && !s->captured; s = s->parent) {
      s->captured = true;
    }
    return &macros_.emplace_back(Macro{definition, scope});
  }
  Namespace* NewNamespace() { return &namespaces_.emplace_back(); }

 private:
  // Deques keep their elements in place.
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_;
  std::deque<Macro> macros_;
  std::deque<Namespace> namespaces_;
};

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_ARENA_H_
