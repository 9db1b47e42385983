// What a type of the KV cache costs in accuracy: the mean loss of the next
// token of a text under each type, and how far the logits are from those with
// fp32.
//
//   bench_kv_accuracy --model PATH --text FILE [--tokens 8192] [--isa ISA]
//
// One JSON object a type on stdout. "last" is over the last eighth of the
// tokens, which have the most context; logit_error is the largest difference
// there over the largest logit.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/config/flags.h"
#include "common/infer/factory/backend_factory.h"
#include "common/text/tokenizer.h"

namespace foretoken {
namespace {

constexpr int32_t kRows = 64;  // of a pass

struct Settings {
  std::string text;
  int32_t tokens = 8192;
};

// Results of one KV type: the loss of every token but the first, and the logits
// of the last rows.
struct Measured {
  std::vector<double> losses;
  std::vector<std::vector<float>> last_logits;
};

double Loss(absl::Span<const float> logits, TokenId next) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - top);
  }
  return std::log(sum) + top - logits[next];
}

double Mean(absl::Span<const double> values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

absl::StatusOr<Measured> Measure(const BackendOptions& options,
                                 absl::Span<const TokenId> tokens) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                             MakeBackend(options));
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened, backend->Open("", {}));
  Measured measured;
  std::vector<int32_t> parents, rows;
  for (int32_t r = 0; r < kRows; ++r) {
    parents.push_back(r - 1);
    rows.push_back(r);
  }
  const size_t last = tokens.size() - tokens.size() / 8;
  for (size_t done = 0; done + 1 < tokens.size(); done += kRows) {
    const size_t count = std::min<size_t>(kRows, tokens.size() - done);
    PassSession pass;
    pass.session = opened.session;
    pass.tokens = tokens.subspan(done, count);
    pass.parents = absl::MakeConstSpan(parents).first(count);
    PassResult result;
    FORETOKEN_RETURN_IF_ERROR(backend->Forward({pass}, result));
    for (size_t r = 0; r < count && done + r + 1 < tokens.size(); ++r) {
      FORETOKEN_ASSIGN_OR_RETURN(
          const absl::Span<const float> logits,
          backend->Logits(opened.session, static_cast<int32_t>(r)));
      measured.losses.push_back(Loss(logits, tokens[done + r + 1]));
      if (done + r >= last && r % 8 == 0) {
        measured.last_logits.emplace_back(logits.begin(), logits.end());
      }
    }
    FORETOKEN_RETURN_IF_ERROR(backend->Commit(
        opened.session, absl::MakeConstSpan(rows).first(count)));
  }
  return measured;
}

Json Report(const std::string& type, const Measured& of, const Measured& fp32) {
  float largest = 0.0f, error = 0.0f;
  int64_t same_top = 0;
  for (size_t i = 0; i < fp32.last_logits.size(); ++i) {
    const std::vector<float>& want = fp32.last_logits[i];
    const std::vector<float>& got = of.last_logits[i];
    for (size_t t = 0; t < want.size(); ++t) {
      largest = std::max(largest, std::fabs(want[t]));
      error = std::max(error, std::fabs(got[t] - want[t]));
    }
    same_top += std::max_element(want.begin(), want.end()) - want.begin() ==
                std::max_element(got.begin(), got.end()) - got.begin();
  }
  const size_t last = of.losses.size() / 8;
  return {{"kv_type", type},
          {"tokens", of.losses.size() + 1},
          {"loss", Mean(of.losses)},
          {"loss_last", Mean(absl::MakeConstSpan(of.losses).last(last))},
          {"logit_error", error / largest},
          {"same_top", static_cast<double>(same_top) /
                           static_cast<double>(fp32.last_logits.size())}};
}

absl::Status Run(int argc, char** argv) {
  Settings settings;
  BackendOptions options;
  Flags flags("bench_kv_accuracy", "Accuracy of the types of the KV cache.");
  options.max_rows = kRows;
  options.backend = "cpu";
  options.AddFlags(flags);
  flags.String("text", &settings.text, "File with the text");
  flags.Int("tokens", &settings.tokens, {64, 1 << 20}, "Tokens of it");
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  FORETOKEN_ASSIGN_OR_RETURN(const auto tokenizer,
                             Tokenizer::LoadShared(options.model));
  FORETOKEN_ASSIGN_OR_RETURN(const std::string text, ReadFile(settings.text));
  std::vector<TokenId> tokens = tokenizer->Encode(text);
  if (static_cast<int64_t>(tokens.size()) < settings.tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        settings.text, ": ", tokens.size(), " tokens, want --tokens of them"));
  }
  tokens.resize(settings.tokens);
  options.kv_cache_tokens = settings.tokens;
  options.kv_type = "fp32";
  FORETOKEN_ASSIGN_OR_RETURN(const Measured fp32, Measure(options, tokens));
  for (const std::string type : {"fp32", "bf16", "q8_0"}) {
    options.kv_type = type;
    FORETOKEN_ASSIGN_OR_RETURN(const Measured of,
                               type == "fp32" ? absl::StatusOr<Measured>(fp32)
                                              : Measure(options, tokens));
    std::printf("%s\n", Report(type, of, fp32).dump().c_str());
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  const absl::Status status = foretoken::Run(argc, argv);
  return status.ok() ? 0 : foretoken::ExitWithError(status);
}
