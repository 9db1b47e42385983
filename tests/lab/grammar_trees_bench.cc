// What the masks of a tree's rows cost beside that of one row.
//
//   bench_grammar_trees TOKENIZER SCHEMAS
//
// SCHEMAS is a file of `foretoken grammar bench`. The valid instances of every
// schema are written twice: token by token with one mask before each, and in
// rounds of four tokens with the masks of a tree of 64 nodes before each: four
// chains of the next sixteen tokens, of this place and of three others of the
// same text, as drafters copy them. Prints one JSON object.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/grammar/compile.h"
#include "common/grammar/constrained_text.h"
#include "common/grammar/json_value.h"
#include "common/text/tokenizer.h"
#include "tools/cli/grammar/xz_lines.h"

namespace foretoken {
namespace {

using grammar::JsonValue;

constexpr int kMaxDepth = 100;
constexpr int64_t kMaxValues = 2'000'000;
constexpr size_t kChains = 4;
constexpr size_t kChainNodes = 16;
constexpr size_t kTokensPerRound = 4;

struct Times {
  double us = 0;
  int64_t count = 0;
  double mean() const { return us / static_cast<double>(count); }
};

struct Totals {
  Times masks, trees;
  int64_t forbidden = 0;  // nodes
  int64_t failed = 0;     // texts that their own grammar or its bounds ended
};

struct Tree {
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;
};

// The tree after the text's first `at` tokens. Row 0 is the last of these.
Tree TreeAt(absl::Span<const TokenId> text, size_t at) {
  Tree tree = {{at == 0 ? 0 : text[at - 1]}, {-1}};
  for (size_t chain = 0; chain < kChains; ++chain) {
    size_t from = at + chain * text.size() / kChains;
    for (size_t i = 0; i < kChainNodes; ++i, ++from) {
      tree.parents.push_back(
          i == 0 ? 0 : static_cast<int32_t>(tree.tokens.size()) - 1);
      tree.tokens.push_back(text[from % text.size()]);
    }
  }
  return tree;
}

std::shared_ptr<grammar::LiveGrammar> Live(
    const std::shared_ptr<const grammar::Grammar>& compiled,
    const std::shared_ptr<const grammar::TokenVocabulary>& vocabulary) {
  return std::make_shared<grammar::LiveGrammar>(compiled, vocabulary);
}

// Writes the text in steps of `step` tokens, with the masks of `rows` before
// each.
template <typename Rows>
bool Write(absl::Span<const TokenId> text, size_t step,
           std::shared_ptr<grammar::LiveGrammar> live, Rows rows, Times& times,
           int64_t* forbidden) {
  grammar::ConstrainedText constrained(std::move(live), {});
  for (size_t at = 0; at < text.size(); at += step) {
    const Tree tree = rows(at);
    const absl::Time begin = MonotonicNow();
    const auto masks = constrained.MaskRows(tree.tokens, tree.parents);
    times.us += absl::ToDoubleMicroseconds(MonotonicNow() - begin);
    ++times.count;
    if (!masks.ok()) return false;
    if (forbidden != nullptr) {
      *forbidden += std::count(masks->begin(), masks->end(), nullptr);
    }
    constrained.Append(text.subspan(at, step));
    if (!constrained.status().ok()) return false;
  }
  return true;
}

absl::Status Add(
    absl::string_view line, const Tokenizer& tokenizer,
    const std::shared_ptr<const grammar::TokenVocabulary>& vocabulary,
    Totals& totals) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const JsonValue row,
      grammar::ParseJsonValue(line, kMaxDepth, kMaxValues));
  const JsonValue* const schema = row.Find("schema");
  const JsonValue* const tests = row.Find("tests");
  if (schema == nullptr || tests == nullptr) {
    return absl::InvalidArgumentError("want {\"schema\", \"tests\"}");
  }
  const auto compiled = grammar::Compile(
      {Constraint::Kind::kJsonSchema, grammar::JsonText(*schema), {}}, {});
  if (!compiled.ok()) return absl::OkStatus();  // not supported: no masks
  const auto one = Live(*compiled, vocabulary);
  const auto many = Live(*compiled, vocabulary);
  for (const JsonValue& test : tests->items) {
    const JsonValue* const valid = test.Find("valid");
    const JsonValue* const data = test.Find("data");
    if (valid == nullptr || valid->kind != JsonValue::kTrue || !data) continue;
    const std::vector<TokenId> ids = tokenizer.Encode(grammar::JsonText(*data));
    const auto text = absl::MakeConstSpan(ids);
    if (text.empty()) continue;
    // Members may stand in another order than the schema's: such texts end.
    const bool whole = Write(
                           text, 1, one,
                           [](size_t) {
                             return Tree{{0}, {-1}};
                           },
                           totals.masks, nullptr) &&
                       Write(
                           text, kTokensPerRound, many,
                           [&](size_t at) { return TreeAt(text, at); },
                           totals.trees, &totals.forbidden);
    totals.failed += whole ? 0 : 1;
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> Measure(const char* tokenizer_path, const char* schemas) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer,
                             Tokenizer::LoadShared(tokenizer_path));
  const auto vocabulary = grammar::TokenVocabulary::Of(tokenizer);
  vocabulary->PrepareMasks();
  Totals totals;
  FORETOKEN_RETURN_IF_ERROR(
      cli::ForEachLine(schemas, [&](absl::string_view line) {
        return Add(line, *tokenizer, vocabulary, totals);
      }));
  if (totals.trees.count == 0) {
    return absl::InvalidArgumentError("no text was written");
  }
  return Json{
      {"masks", totals.masks.count},
      {"mask_us_mean", totals.masks.mean()},
      {"trees", totals.trees.count},
      {"tree_us_mean", totals.trees.mean()},
      {"ratio", totals.trees.mean() / totals.masks.mean()},
      {"nodes", 1 + kChains * kChainNodes},
      {"forbidden_share",
       static_cast<double>(totals.forbidden) /
           static_cast<double>(totals.trees.count * kChains * kChainNodes)},
      {"texts_that_ended_early", totals.failed}};
}

int Main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s TOKENIZER SCHEMAS\n", argv[0]);
    return 2;
  }
  const auto report = Measure(argv[1], argv[2]);
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", report.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", DumpJson(*report).c_str());
  return 0;
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) { return foretoken::Main(argc, argv); }
