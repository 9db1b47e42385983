// Any bytes as a grammar in llama.cpp's notation: refused with a short message,
// or built within its limits; what the automaton forces, it accepts.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/grammar/automaton.h"
#include "common/grammar/gbnf.h"
#include "common/grammar/grammar.h"
#include "common/text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using foretoken::grammar::Automaton;
  using foretoken::grammar::Grammar;
  using foretoken::grammar::GrammarBuilder;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  GrammarBuilder builder(
      {.regex_bytes = 1 << 20, .rules = 10'000, .terminals = 1'000});
  const auto root = foretoken::grammar::AddGbnf(text, builder);
  if (!root.ok()) {
    FORETOKEN_CHECK(root.status().message().size() < 200 + size);
    return 0;
  }
  auto grammar = std::move(builder).Build(*root);
  if (!grammar.ok()) return 0;

  Automaton automaton(std::make_shared<const Grammar>(*std::move(grammar)));
  Automaton::State state = automaton.start();
  std::string written;
  // Follows what is forced, and the least byte where there is a choice.
  for (int step = 0; step < 16 && automaton.status().ok(); ++step) {
    Automaton::State forced = state;
    const std::string bytes = automaton.Forced(forced, 16);
    const bool agrees = automaton.Step(state, bytes) == forced;
    if (!automaton.status().ok()) return 0;
    FORETOKEN_CHECK(agrees && forced != Automaton::kDead);
    written += bytes;
    state = forced;
    if (automaton.Accepts(state)) {
      FORETOKEN_CHECK(foretoken::IsValidUtf8(written));
    }
    int byte = 0;
    while (byte < 256 && automaton.Step(state, static_cast<uint8_t>(byte)) ==
                             Automaton::kDead) {
      ++byte;
    }
    if (byte == 256) {
      // A grammar that was built has no dead end.
      FORETOKEN_CHECK(automaton.Accepts(state) || !automaton.status().ok());
      return 0;
    }
    state = automaton.Step(state, static_cast<uint8_t>(byte));
    written += static_cast<char>(byte);
  }
  return 0;
}
