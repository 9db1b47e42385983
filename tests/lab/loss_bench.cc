// Mean next-token loss of a model on given tokens, what its quantised weights
// and activations cost in accuracy.
//
//   bench_loss MODEL IDS [fp32|bf16] [WINDOW]
//
// IDS is a file of token ids between white space. They are cut into windows of
// WINDOW tokens (512), each a context of its own. fp32 expands the weights and
// rounds no activation. Prints one JSON object.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/model_weights.h"

namespace foretoken {
namespace {

// Minus the logarithm of the probability of `token`.
double Loss(absl::Span<const float> logits, TokenId token) {
  double largest = logits[0];
  for (const float logit : logits) {
    largest = std::max(largest, static_cast<double>(logit));
  }
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - largest);
  return std::log(total) + largest - static_cast<double>(logits[token]);
}

// Adds the losses of the tokens after the first one.
absl::Status AddLosses(Backend& backend, absl::Span<const TokenId> tokens,
                       double& sum, int64_t& count) {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened, backend.Open("", {}));
  std::vector<int32_t> parents(tokens.size());
  std::iota(parents.begin(), parents.end(), -1);
  PassSession pass;
  pass.session = opened.session;
  pass.tokens = tokens;
  pass.parents = parents;
  PassResult result;
  FORETOKEN_RETURN_IF_ERROR(backend.Forward({pass}, result));
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(
        const absl::Span<const float> logits,
        backend.Logits(opened.session, static_cast<int32_t>(i)));
    sum += Loss(logits, tokens[i + 1]);
    ++count;
  }
  return backend.Close(opened.session);
}

absl::StatusOr<Json> Measure(const std::string& model, const std::string& ids,
                             Precision precision, int32_t window) {
  FORETOKEN_ASSIGN_OR_RETURN(auto weights, ModelWeights::Load(model));
  CpuOptions options;
  options.precision = precision;
  options.max_rows = window;
  FORETOKEN_ASSIGN_OR_RETURN(const auto backend,
                             MakeCpuBackend(std::move(weights), options));
  std::ifstream file(ids);
  const std::vector<TokenId> tokens{std::istream_iterator<TokenId>(file), {}};
  double sum = 0;
  int64_t count = 0;
  const auto all = absl::MakeConstSpan(tokens);
  for (size_t at = 0; at + 1 < all.size(); at += window) {
    FORETOKEN_RETURN_IF_ERROR(
        AddLosses(*backend, all.subspan(at, window), sum, count));
  }
  if (count == 0) return absl::InvalidArgumentError(ids + ": no two tokens");
  Json report = {{"tokens", count}, {"loss", sum / static_cast<double>(count)}};
  report["numerics"] = backend->numerics_fingerprint();
  return report;
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  using foretoken::Precision;
  const std::string precision = argc > 3 ? argv[3] : "bf16";
  int32_t window = 512;
  if (argc < 3 || (precision != "bf16" && precision != "fp32") ||
      (argc > 4 && (!absl::SimpleAtoi(argv[4], &window) || window < 2))) {
    std::fprintf(stderr, "usage: bench_loss MODEL IDS [fp32|bf16] [WINDOW]\n");
    return 2;
  }
  const auto report = foretoken::Measure(
      argv[1], argv[2],
      precision == "fp32" ? Precision::kFloat32 : Precision::kBFloat16, window);
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", report.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", report->dump().c_str());
  return 0;
}
