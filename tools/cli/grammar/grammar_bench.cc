#include "tools/cli/grammar/grammar_bench.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/grammar/automaton.h"
#include "common/grammar/grammar.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/json_value.h"
#include "common/grammar/token_masks.h"

namespace foretoken::cli {
namespace {

using grammar::Automaton;
using grammar::JsonValue;

// Nesting and size of a row of the test suite, whose lines hold a schema and
// all of its instances; far above any of them, so that a damaged file fails
// before it fills the memory.
constexpr int kMaxDepth = 100;
constexpr int64_t kMaxValues = 2'000'000;

double MicrosecondsSince(absl::Time start) {
  return absl::ToDoubleMicroseconds(MonotonicNow() - start);
}

// Nearest rank, as the published figures are computed.
double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  // min() below is for a share of 1.
  const size_t rank =
      static_cast<size_t>(share * static_cast<double>(values.size()));
  return values[std::min(rank, values.size() - 1)];
}

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

// Every text that is valid JSON in this spacing counts, whatever the order of
// its members.
grammar::JsonSchemaOptions Options() {
  grammar::JsonSchemaOptions options;
  options.style.schema_order = false;
  options.style.integers_with_point = true;
  return options;
}

struct Compiled {
  std::shared_ptr<const grammar::Grammar> grammar;
  std::vector<std::string> unchecked;
};

absl::StatusOr<Compiled> Compile(const std::string& schema) {
  grammar::GrammarBuilder builder;
  // The parser's own limits still apply: a schema beyond them is a refusal of
  // the row, "limit", not an error of the run.
  FORETOKEN_ASSIGN_OR_RETURN(
      grammar::JsonSchemaResult result,
      grammar::AddJsonSchema(schema, Options(), builder));
  FORETOKEN_ASSIGN_OR_RETURN(grammar::Grammar grammar,
                             std::move(builder).Build(result.root));
  return Compiled{std::make_shared<const grammar::Grammar>(std::move(grammar)),
                  std::move(result.unchecked)};
}

}  // namespace

GrammarBench::GrammarBench(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)),
      vocabulary_(grammar::TokenVocabulary::Of(tokenizer_)) {}

absl::StatusOr<GrammarBench::Row> GrammarBench::Run(absl::string_view line) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const JsonValue json,
      grammar::ParseJsonValue(line, kMaxDepth, kMaxValues));
  const JsonValue* const name = json.Find("name");
  const JsonValue* const schema = json.Find("schema");
  const JsonValue* const tests = json.Find("tests");
  if (name == nullptr || name->kind != JsonValue::kString ||
      schema == nullptr || tests == nullptr ||
      tests->kind != JsonValue::kArray) {
    return absl::InvalidArgumentError(
        "want {\"name\": ..., \"schema\": ..., \"tests\": [...]}");
  }
  Row row;
  row.name = name->text;
  ++rows_;
  // Parsing the row's JSON is not timed: a server is given the schema as text,
  // so the schema is turned back into text first.
  const std::string text = grammar::JsonText(*schema);
  const absl::Time start = MonotonicNow();
  // Compilation is timed with the automaton's start state, since no token can
  // be masked before both exist.
  absl::StatusOr<Compiled> compiled = Compile(text);
  if (!compiled.ok()) {
    row.status =
        absl::IsResourceExhausted(compiled.status()) ? "limit" : "refused";
    row.reason = std::string(compiled.status().message());
    ++by_status_[row.status];
    return row;
  }
  Automaton automaton(compiled->grammar);
  row.compile_us = MicrosecondsSince(start);
  compiles_.push_back(row.compile_us);
  row.unchecked = std::move(compiled->unchecked);

  // One cache of masks for all tests of a row, as the requests of one schema
  // share it in a server: the first instance pays for most masks.
  grammar::TokenMasks masks(automaton, vocabulary_);
  for (const JsonValue& test : tests->items) {
    const JsonValue* const valid = test.Find("valid");
    const JsonValue* const data = test.Find("data");
    if (valid == nullptr || !valid->is_bool() || data == nullptr) {
      return absl::InvalidArgumentError(
          "tests: want {\"valid\": ..., \"data\": ...}");
    }
    ++row.tests;
    Automaton::State state = automaton.start();
    bool accepted = true;
    // The instance is tokenized as the model would most likely write it; other
    // tokenizations of the same text are not tried.
    for (const TokenId token : tokenizer_->Encode(grammar::JsonText(*data))) {
      const absl::Time begin = MonotonicNow();
      // A mask for every position, as decoding would need it, although only one
      // bit of it is read.
      const auto mask = masks.Mask(state);
      const double took = MicrosecondsSince(begin);
      masks_.push_back(took);
      ++row.masks;
      row.mask_us_sum += took;
      row.mask_us_max = std::max(row.mask_us_max, took);
      if (!mask.ok()) {
        row.status = "limit";
        row.reason = std::string(mask.status().message());
        break;
      }
      if (!grammar::HasToken(**mask, token)) {
        accepted = false;
        break;
      }
      state = automaton.Step(state, vocabulary_->bytes(token));
    }
    if (row.status == "limit") break;
    // Every token may be allowed and the text still end too early.
    accepted = accepted && automaton.Accepts(state);
    // An instance marked invalid that is refused is a pass too.
    if (accepted == (valid->kind == JsonValue::kTrue)) continue;
    row.status = accepted ? "invalid_accepted" : "valid_rejected";
    // Long instances are cut: the reason is for reading.
    row.reason = grammar::JsonText(*data).substr(0, 400);
    // A valid instance that is rejected is the worse fault of the two.
    if (!accepted) break;
  }
  ++by_status_[row.status];
  return row;
}

Json GrammarBench::Row::ToJson() const {
  return {{"name", name},
          {"status", status},
          {"reason", reason},
          {"unchecked", unchecked},
          {"compile_us", compile_us},
          {"masks", masks},
          {"mask_us_mean",
           masks == 0 ? 0.0 : mask_us_sum / static_cast<double>(masks)},
          {"mask_us_max", mask_us_max},
          {"tests", tests}};
}

Json GrammarBench::Summary() const {
  Json summary = {{"rows", rows_}};
  for (const char* status :
       {"pass", "refused", "valid_rejected", "invalid_accepted", "limit"}) {
    const auto found = by_status_.find(status);
    summary[status] = found == by_status_.end() ? 0 : found->second;
  }
  summary["compile_us_p50"] = Percentile(compiles_, 0.5);
  summary["compile_us_p99"] = Percentile(compiles_, 0.99);
  summary["mask_us_mean"] = Mean(masks_);
  summary["mask_us_p50"] = Percentile(masks_, 0.5);
  summary["mask_us_p99"] = Percentile(masks_, 0.99);
  summary["masks"] = masks_.size();
  return {{"summary", std::move(summary)}};
}

}  // namespace foretoken::cli
