#include "tests/gpu/gpu_checks.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "tests/support/huge_values.h"

namespace foretoken::gpu_tests {
namespace {

CudaOptions Options() {
  CudaOptions options;
  options.max_rows = 512;
  options.kv_cache_bytes = int64_t{64} << 20;
  return options;
}

// A tree of few paths however many rows: a chain of up to 40 and the same
// three children at every one of its rows.
struct Comb {
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;
};

Comb MakeComb(int rows, const std::vector<TokenId>& some) {
  Comb comb;
  comb.parents = Chain(rows);
  for (int r = 0; r < rows; ++r) {
    comb.tokens.push_back(r < 40 ? some[r] : some[40 + r % 3]);
    if (r >= 40) comb.parents[r] = r * 7 % 40;
  }
  return comb;
}

std::vector<TokenId> PathTo(const Comb& comb, int32_t row) {
  std::vector<TokenId> path;
  for (int32_t r = row; r >= 0; r = comb.parents[r]) {
    path.push_back(comb.tokens[r]);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

absl::Status CompareLogits(Context& context, const ModelConfig& config,
                           WeightType type, const std::string& name) {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<ModelWeights> weights,
                             ModelWeights::Random(config, type, 5));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> gpu,
                             MakeGpuBackend(context, *weights, Options()));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> reference,
                             MakeReference(std::move(weights)));
  std::mt19937 random(1);
  const std::vector<TokenId> tokens =
      RandomTokens(context.quick ? 40 : 150, config, random);
  float largest = 0.0f, difference = 0.0f;
  // Prefill, and rows of which most keys are committed.
  for (const size_t committed : {size_t{0}, tokens.size() - 10}) {
    const auto rest = absl::MakeConstSpan(tokens).subspan(committed);
    std::vector<std::vector<Logits>> both;
    for (Backend* backend : {gpu.get(), reference.get()}) {
      FORETOKEN_ASSIGN_OR_RETURN(
          const SessionId session,
          OpenWith(*backend, absl::MakeConstSpan(tokens).first(committed), 64));
      FORETOKEN_RETURN_IF_ERROR(
          RunRows(*backend, session, rest, Chain(static_cast<int>(rest.size())))
              .status());
      std::vector<Logits> rows;
      for (size_t r = 0; r < rest.size(); ++r) {
        FORETOKEN_ASSIGN_OR_RETURN(
            Logits logits,
            LogitsOf(*backend, session, static_cast<int32_t>(r)));
        rows.push_back(std::move(logits));
      }
      both.push_back(std::move(rows));
    }
    for (size_t r = 0; r < rest.size(); ++r) {
      for (size_t i = 0; i < both[1][r].size(); ++i) {
        largest = std::max(largest, std::abs(both[1][r][i]));
        const float off = std::abs(both[0][r][i] - both[1][r][i]);
        if (!(off <= difference)) difference = off;  // keeps a NaN
      }
    }
  }
  std::printf("     %-24s max |difference| / max |logit| = %.4f\n",
              name.c_str(), difference / largest);
  context.Expect(difference / largest <= 3e-2f,
                 absl::StrFormat("%s: off by %.4f of the largest logit", name,
                                 difference / largest));
  return absl::OkStatus();
}

// Rows of a comb against one token at a time.
absl::Status CompareComb(Context& context, Backend& backend, int rows,
                         const std::vector<TokenId>& some) {
  const Comb comb = MakeComb(rows, some);
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened, backend.Open("", {}));
  // The second pass of a size runs in a graph.
  FORETOKEN_RETURN_IF_ERROR(
      RunRows(backend, opened.session, comb.tokens, comb.parents).status());
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::vector<SampledToken> drawn,
      RunRows(backend, opened.session, comb.tokens, comb.parents));
  std::vector<Logits> got;
  for (int32_t r = 0; r < rows; ++r) {
    FORETOKEN_ASSIGN_OR_RETURN(Logits logits,
                               LogitsOf(backend, opened.session, r));
    const TokenId best = static_cast<TokenId>(
        std::max_element(logits.begin(), logits.end()) - logits.begin());
    context.Expect(drawn[r].token == best,
                   absl::StrCat(rows, " rows, row ", r, ": drew ",
                                drawn[r].token, ", the arg max is ", best));
    got.push_back(std::move(logits));
  }
  // Paths of equal prefixes are computed once, children one by one.
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::vector<Logits> chain,
      OneByOne(backend, absl::MakeConstSpan(some).first(std::min(rows, 40))));
  for (int32_t r = 0; r < std::min(rows, 40); ++r) {
    context.Expect(SameBits(got[r], chain[r]),
                   absl::StrCat(rows, " rows, row ", r, " of the chain"));
  }
  for (int32_t r = 40; r < rows; r += context.quick ? 61 : 13) {
    const std::vector<TokenId> path = PathTo(comb, r);
    FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Logits> want,
                               OneByOne(backend, path));
    context.Expect(SameBits(got[r], want.back()),
                   absl::StrCat(rows, " rows, row ", r));
  }
  return backend.Close(opened.session);
}

// Sessions of different contexts and trees, all in one pass.
struct Mates {
  std::vector<std::vector<TokenId>> contexts, tokens;
  std::vector<std::vector<int32_t>> parents;
};

Mates MakeMates(int count, const ModelConfig& config, std::mt19937& random) {
  Mates mates;
  for (int s = 0; s < count; ++s) {
    mates.contexts.push_back(RandomTokens(random() % 300, config, random));
    const int rows = 1 + random() % 16;
    mates.tokens.push_back(RandomTokens(rows, config, random));
    std::vector<int32_t> parents(rows);
    for (int r = 0; r < rows; ++r) {
      parents[r] = static_cast<int32_t>(random() % (r + 1)) - 1;
    }
    mates.parents.push_back(std::move(parents));
  }
  return mates;
}

// Logits of every row of sessions begin..end-1, in one pass.
absl::StatusOr<std::vector<Logits>> RunMates(Backend& backend,
                                             const Mates& mates, size_t begin,
                                             size_t end, int chunk) {
  std::vector<PassSession> pass(end - begin);
  for (size_t s = begin; s < end; ++s) {
    FORETOKEN_ASSIGN_OR_RETURN(pass[s - begin].session,
                               OpenWith(backend, mates.contexts[s], chunk));
    pass[s - begin].tokens = mates.tokens[s];
    pass[s - begin].parents = mates.parents[s];
  }
  PassResult result;
  FORETOKEN_RETURN_IF_ERROR(backend.Forward(pass, result));
  std::vector<Logits> all;
  for (const PassSession& session : pass) {
    for (size_t r = 0; r < session.tokens.size(); ++r) {
      FORETOKEN_ASSIGN_OR_RETURN(
          Logits logits,
          LogitsOf(backend, session.session, static_cast<int32_t>(r)));
      all.push_back(std::move(logits));
    }
  }
  for (const PassSession& session : pass) {
    FORETOKEN_RETURN_IF_ERROR(backend.Close(session.session));
  }
  return all;
}

absl::Status CompareMates(Context& context, Backend& one, Backend& other,
                          int chunk, bool apart, const std::string& name) {
  std::mt19937 random(8);
  const int count = context.quick ? 4 : 20;
  const Mates mates = MakeMates(count, one.config(), random);
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Logits> together,
                             RunMates(one, mates, 0, mates.tokens.size(), 100));
  std::vector<Logits> compared;
  for (size_t s = 0; s < mates.tokens.size();) {
    const size_t end = apart ? s + 1 : mates.tokens.size();
    FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Logits> some,
                               RunMates(other, mates, s, end, chunk));
    compared.insert(compared.end(), some.begin(), some.end());
    s = end;
  }
  for (size_t i = 0; i < together.size(); ++i) {
    context.Expect(SameBits(together[i], compared[i]),
                   absl::StrCat(name, ": row ", i, " differs"));
  }
  return absl::OkStatus();
}

// A chain whose last half is ordinary or all of huge values: the first half
// must not notice, alone or with the whole chain behind it.
absl::Status CompareBesideHugeValues(Context& context, WeightType type,
                                     const std::string& name) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<HugeValueWeights> weights,
      HugeValueWeights::Create(TestConfig(context), type));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                             MakeGpuBackend(context, *weights, Options()));
  constexpr int kRows = 48, kOwn = 24;
  std::mt19937 random(6);
  std::vector<TokenId> tokens = RandomTokens(kRows, weights->config(), random);
  for (TokenId& token : tokens) {
    token += token == HugeValueWeights::kHugeToken;
  }
  const auto run = [&](int rows) -> absl::StatusOr<std::vector<Logits>> {
    FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened,
                               backend->Open("", {}));
    const std::vector<int32_t> parents = Chain(rows);
    FORETOKEN_RETURN_IF_ERROR(RunRows(*backend, opened.session,
                                      absl::MakeConstSpan(tokens).first(rows),
                                      parents)
                                  .status());
    std::vector<Logits> all;
    for (int32_t r = 0; r < rows; ++r) {
      FORETOKEN_ASSIGN_OR_RETURN(Logits logits,
                                 LogitsOf(*backend, opened.session, r));
      all.push_back(std::move(logits));
    }
    FORETOKEN_RETURN_IF_ERROR(backend->Close(opened.session));
    return all;
  };
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Logits> alone, run(kOwn));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Logits> ordinary, run(kRows));
  std::fill(tokens.begin() + kOwn, tokens.end(), HugeValueWeights::kHugeToken);
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Logits> huge, run(kRows));
  for (int r = 0; r < kOwn; ++r) {
    context.Expect(SameBits(ordinary[r], alone[r]),
                   absl::StrCat(name, ": row ", r, " beside ordinary values"));
    context.Expect(SameBits(huge[r], alone[r]),
                   absl::StrCat(name, ": row ", r, " beside huge values"));
  }
  // What the rows of the token itself see is a number, too.
  for (int r = kOwn; r < kRows; ++r) {
    context.Expect(std::all_of(huge[r].begin(), huge[r].end(),
                               [](float x) { return std::isfinite(x); }),
                   absl::StrCat(name, ": row ", r, " has no numbers"));
    context.Expect(!SameBits(huge[r], ordinary[r]),
                   absl::StrCat(name, ": row ", r, " sees no huge values"));
  }
  return absl::OkStatus();
}

}  // namespace

void CheckHugeValues(Context& context) {
  context.ExpectOk(
      CompareBesideHugeValues(context, WeightType::kBFloat16, "bf16"), "bf16");
  context.ExpectOk(
      CompareBesideHugeValues(context, WeightType::kFloat16, "fp16"), "fp16");
}

void CheckLogits(Context& context) {
  const ModelConfig plain = TestConfig(context);
  ModelConfig biased = plain, normed = plain, wide = plain, widest = plain,
              odd = plain;
  biased.qkv_bias = biased.output_bias = biased.mlp_bias = true;
  normed.qk_norm = normed.tied_embeddings = true;
  wide.head_dim = context.small() ? 24 : 128;
  wide.n_kv_heads = wide.n_heads;
  widest.head_dim = context.small() ? 140 : 256;
  // No multiple of a tile, nor of a head's padded length; three heads a group.
  odd.d_model = context.small() ? 50 : 1001;
  odd.d_ff = context.small() ? 75 : 2701;
  odd.n_heads = 6;
  odd.n_kv_heads = 2;
  odd.head_dim = context.small() ? 34 : 80;
  const struct {
    const char* name;
    const ModelConfig& config;
    WeightType type;
  } cases[] = {{"bf16", plain, WeightType::kBFloat16},
               {"fp16", plain, WeightType::kFloat16},
               {"biases", biased, WeightType::kBFloat16},
               {"qk_norm, tied", normed, WeightType::kBFloat16},
               {"wide heads", wide, WeightType::kBFloat16},
               {"widest heads", widest, WeightType::kBFloat16},
               {"odd sizes", odd, WeightType::kBFloat16}};
  for (const auto& c : cases) {
    context.ExpectOk(CompareLogits(context, c.config, c.type, c.name), c.name);
  }
}

void CheckRowCounts(Context& context) {
  const ModelConfig plain = TestConfig(context);
  ModelConfig wide = plain, full = plain;
  wide.head_dim =
      context.small() ? 24 : 128;  // of the shapes that are measured
  // On an H200 the thread blocks of the QKV product fill the device even
  // without one for each group of K, so the kernel adds the groups' sums
  // itself.
  full.n_layers = 2;
  full.n_heads = 32;
  full.n_kv_heads = 8;
  full.head_dim = context.small() ? 8 : 128;
  // Every tile of rows: 8, 16, 32, 64, 72, 128, 192, 256, and five of 128.
  const struct {
    const ModelConfig& config;
    WeightType type;
    std::vector<int> rows;
  } cases[] = {
      {plain, WeightType::kBFloat16, {1, 2, 3, 8, 17, 64, 65, 128, 256, 320}},
      {plain, WeightType::kFloat16, {1, 17, 64, 65, 128, 256, 320}},
      {wide, WeightType::kBFloat16, {1, 16, 65, 256}},
      {full, WeightType::kBFloat16, {1, 513}}};
  for (const auto& c : cases) {
    CudaOptions options = Options();
    options.max_rows = 640;
    const auto backend = MakeGpuBackend(context, c.config, options, c.type);
    if (!context.ExpectOk(backend.status(), "backend")) return;
    std::mt19937 random(2);
    const std::vector<TokenId> some = RandomTokens(43, c.config, random);
    for (const int rows : c.rows) {
      if (context.quick && !context.tiny && rows > 64) continue;
      context.ExpectOk(
          CompareComb(context, **backend, rows, some),
          absl::StrCat(rows, " rows, heads of ", c.config.head_dim));
    }
  }
}

void CheckTreesAndMates(Context& context) {
  const auto backend = MakeGpuBackend(context, TestConfig(context), Options());
  if (!context.ExpectOk(backend.status(), "backend")) return;
  context.ExpectOk(CompareMates(context, **backend, **backend, 100, true,
                                "alone against together"),
                   "mates");
}

void CheckChunks(Context& context) {
  const auto backend = MakeGpuBackend(context, TestConfig(context), Options());
  if (!context.ExpectOk(backend.status(), "backend")) return;
  for (const int chunk : {1, 33, 512}) {
    if (context.quick && chunk == 1) continue;
    context.ExpectOk(CompareMates(context, **backend, **backend, chunk, false,
                                  absl::StrCat("chunks of ", chunk)),
                     "chunks");
  }
}

void CheckGraphs(Context& context) {
  const ModelConfig config = TestConfig(context);
  const auto both = MakeGpuBackend(context, config, Options());
  if (!context.ExpectOk(both.status(), "backend")) return;
  for (const bool graphs : {false, true}) {
    CudaOptions options = Options();
    options.graphs = graphs;
    options.overlap = false;
    const auto other = MakeGpuBackend(context, config, options);
    if (!context.ExpectOk(other.status(), "other backend")) return;
    context.ExpectOk(
        CompareMates(context, **both, **other, 100, false,
                     absl::StrCat("graphs ", graphs, ", no overlap")),
        "graphs");
  }
}

void CheckMemory(Context& context) {
  CudaOptions options = Options();
  options.kv_cache_bytes = int64_t{1} << 50;
  const absl::Status status =
      MakeGpuBackend(context, TestConfig(context), options).status();
  context.Expect(status.code() == absl::StatusCode::kResourceExhausted,
                 absl::StrCat("2^50 bytes of KV: ", status.ToString()));
  // And the device is as good as before.
  const auto backend = MakeGpuBackend(context, TestConfig(context), Options());
  context.ExpectOk(backend.status(), "afterwards");
}

}  // namespace foretoken::gpu_tests
