// Checks of what is written: commits, the sampler, speculative decoding.
#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/sampling/sampler.h"
#include "tests/gpu/gpu_checks.h"

namespace foretoken::gpu_tests {
namespace {

CudaOptions Options() {
  CudaOptions options;
  options.max_rows = 512;
  options.kv_cache_bytes = int64_t{256} << 20;
  return options;
}

// A session that decodes, with drafts or without.
struct Writer {
  SessionId session = -1;
  SamplingState state;
  std::vector<TokenId> output;  // the last is not committed yet
  std::mt19937 random;
  // Rows of the present pass: the last token and a tree below it.
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;
};

SamplingParams ParamsOf(int s, bool greedy) {
  SamplingParams params;
  if (!greedy) {
    params.temperature = 0.8f;
    params.seed = 1000 + s;
    if (s % 2 == 1) params.top_p = 0.9f;
    if (s % 3 == 1) params.top_k = 40;
  }
  if (s % 4 == 2) {
    params.repetition_penalty = 1.1f;
    params.frequency_penalty = 0.3f;
    params.presence_penalty = 0.2f;
  }
  return params;
}

absl::StatusOr<Writer> Start(Backend& backend, int s, bool greedy) {
  std::mt19937 random(100 + s);
  const std::vector<TokenId> prompt =
      RandomTokens(20 + s * 7 % 90, backend.config(), random);
  Writer writer{
      -1,
      SamplingState(ParamsOf(s, greedy), static_cast<int64_t>(prompt.size()),
                    backend.config().vocab_size),
      {},
      std::move(random),
      {},
      {}};
  const auto all = absl::MakeConstSpan(prompt);
  FORETOKEN_ASSIGN_OR_RETURN(
      writer.session, OpenWith(backend, all.first(prompt.size() - 1), 40));
  writer.state.Append(all.first(prompt.size() - 1));
  writer.output = {prompt.back()};
  return writer;
}

// The truth's next tokens with a stranger here and there, strangers beside.
void Draft(Writer& writer, const std::vector<TokenId>* truth, int32_t vocab) {
  writer.tokens = {writer.output.back()};
  writer.parents = {-1};
  if (truth == nullptr) return;
  const size_t done = writer.output.size();
  const int length = static_cast<int>(writer.random() % 8);
  for (int i = 0; i < length && done + i < truth->size(); ++i) {
    const bool wrong = writer.random() % 6 == 0;
    const TokenId token = (*truth)[done + i];
    if (writer.random() % 3 == 0) {
      writer.tokens.push_back(static_cast<TokenId>(writer.random() % vocab));
      writer.parents.push_back(
          static_cast<int32_t>(writer.random() % writer.parents.size()));
    }
    writer.parents.push_back(i == 0 ? 0 : writer.parents.back());
    // The chain goes on below the row that was last of it.
    if (i > 0) {
      int32_t last = static_cast<int32_t>(writer.tokens.size()) - 1;
      while (last > 0 && writer.tokens[last] != (*truth)[done + i - 1]) --last;
      writer.parents.back() = last;
    }
    writer.tokens.push_back(wrong ? (token + 1) % vocab : token);
  }
}

// What the row tokens agree with, committed.
absl::Status Advance(Backend& backend, Writer& writer,
                     const std::vector<SampledToken>& drawn, size_t most) {
  std::vector<int32_t> path = {0};
  std::vector<TokenId> committed = {writer.tokens[0]};
  writer.output.push_back(drawn[0].token);
  for (bool moved = true; moved && writer.output.size() < most;) {
    moved = false;
    for (size_t r = 1; r < writer.tokens.size() && !moved; ++r) {
      if (writer.parents[r] != path.back() ||
          writer.tokens[r] != writer.output.back()) {
        continue;
      }
      path.push_back(static_cast<int32_t>(r));
      committed.push_back(writer.tokens[r]);
      writer.output.push_back(drawn[r].token);
      moved = true;
    }
  }
  writer.state.Append(committed);
  return backend.Commit(writer.session, path);
}

// Outputs of `sessions` sessions in common passes; with drafts out of `truths`
// if given. `passes` counts them.
absl::StatusOr<std::vector<std::vector<TokenId>>> Write(
    Backend& backend, int sessions, size_t length, bool greedy,
    const std::vector<std::vector<TokenId>>* truths, int* passes) {
  std::vector<Writer> writers;
  for (int s = 0; s < sessions; ++s) {
    FORETOKEN_ASSIGN_OR_RETURN(Writer writer, Start(backend, s, greedy));
    writers.push_back(std::move(writer));
  }
  for (;;) {
    std::vector<PassSession> pass;
    std::vector<int> who;
    for (int s = 0; s < sessions; ++s) {
      Writer& writer = writers[s];
      if (writer.output.size() >= length) continue;
      Draft(writer, truths == nullptr ? nullptr : &(*truths)[s],
            backend.config().vocab_size);
      // Room ahead for the walk, but not always.
      if (writer.random() % 4 != 0) {
        FORETOKEN_RETURN_IF_ERROR(
            backend.Reserve(writer.session, writer.state.length() + 10));
      }
      PassSession session;
      session.session = writer.session;
      session.tokens = writer.tokens;
      session.parents = writer.parents;
      session.sampling = &writer.state;
      pass.push_back(session);
      who.push_back(s);
    }
    if (pass.empty()) break;
    PassResult result;
    FORETOKEN_RETURN_IF_ERROR(backend.Forward(pass, result));
    ++*passes;
    for (size_t i = 0; i < who.size(); ++i) {
      FORETOKEN_RETURN_IF_ERROR(
          Advance(backend, writers[who[i]], result.outputs[i], length));
    }
  }
  std::vector<std::vector<TokenId>> outputs;
  for (const Writer& writer : writers) {
    outputs.push_back(writer.output);
    FORETOKEN_RETURN_IF_ERROR(backend.Close(writer.session));
  }
  return outputs;
}

absl::Status CompareSpeculative(Context& context, Backend& backend,
                                bool greedy) {
  const int sessions = context.quick ? 2 : context.small() ? 4 : 16;
  const size_t length = context.quick ? 20 : context.small() ? 120 : 1251;
  int plain_passes = 0, passes = 0;
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto plain,
      Write(backend, sessions, length, greedy, nullptr, &plain_passes));
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto speculative,
      Write(backend, sessions, length, greedy, &plain, &passes));
  int64_t tokens = 0;
  for (int s = 0; s < sessions; ++s) {
    tokens += static_cast<int64_t>(plain[s].size()) - 1;
    const auto same =
        std::mismatch(plain[s].begin(), plain[s].end(), speculative[s].begin(),
                      speculative[s].end());
    context.Expect(
        same.first == plain[s].end() && same.second == speculative[s].end(),
        absl::StrCat(greedy ? "greedy" : "seeded", ", session ", s,
                     ": differs at token ", same.first - plain[s].begin()));
  }
  std::printf("     %s: %lld tokens, %d plain passes, %d speculative\n",
              greedy ? "greedy" : "seeded", static_cast<long long>(tokens),
              plain_passes, passes);
  context.Expect(passes < plain_passes, "drafts were never taken");
  return absl::OkStatus();
}

// A chain along the model's own tokens, committed whole or in part, with the
// pages for the walk or without; then one more row.
absl::StatusOr<Logits> CommitAndGoOn(Backend& backend,
                                     const std::vector<TokenId>& chain,
                                     int32_t commit, bool ahead) {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened, backend.Open("", {}));
  if (ahead) FORETOKEN_RETURN_IF_ERROR(backend.Reserve(opened.session, 100));
  FORETOKEN_RETURN_IF_ERROR(RunRows(backend, opened.session, chain,
                                    Chain(static_cast<int>(chain.size())))
                                .status());
  std::vector<int32_t> path;
  for (int32_t r = 0; r < commit; ++r) path.push_back(r);
  FORETOKEN_RETURN_IF_ERROR(backend.Commit(opened.session, path));
  FORETOKEN_RETURN_IF_ERROR(
      RunRows(backend, opened.session, {chain[commit]}, {-1}).status());
  FORETOKEN_ASSIGN_OR_RETURN(Logits logits,
                             LogitsOf(backend, opened.session, 0));
  FORETOKEN_RETURN_IF_ERROR(backend.Close(opened.session));
  return logits;
}

absl::Status CompareCommits(Context& context, Backend& backend) {
  std::vector<TokenId> chain = {7};
  while (chain.size() < 40) {
    FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened,
                               backend.Open("", {}));
    FORETOKEN_ASSIGN_OR_RETURN(const auto drawn,
                               RunRows(backend, opened.session, chain,
                                       Chain(static_cast<int>(chain.size()))));
    chain.push_back(drawn.back().token);
    FORETOKEN_RETURN_IF_ERROR(backend.Close(opened.session));
  }
  chain.push_back((chain.back() + 1) % backend.config().vocab_size);
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Logits> want,
                             OneByOne(backend, chain));
  for (const int32_t commit : {1, 31, 32, 33, 40}) {
    for (const bool ahead : {false, true}) {
      FORETOKEN_ASSIGN_OR_RETURN(const Logits got,
                                 CommitAndGoOn(backend, chain, commit, ahead));
      context.Expect(SameBits(got, want[commit]),
                     absl::StrCat("commit of ", commit, " rows, ",
                                  ahead ? "" : "not ", "moved ahead"));
    }
  }
  return absl::OkStatus();
}

absl::Status CompareSampler(Context& context, Backend& backend) {
  const ModelConfig& config = backend.config();
  std::mt19937 random(6);
  const std::vector<TokenId> prompt = RandomTokens(50, config, random);
  FORETOKEN_ASSIGN_OR_RETURN(const SessionId session,
                             OpenWith(backend, prompt, 50));
  std::vector<TokenId> tokens = RandomTokens(12, config, random);
  tokens[3] = tokens[1];
  tokens[5] = prompt[2];
  const std::vector<int32_t> parents = {-1, 0, 1, 2, 0, 4, 5, 3, 7, 0, 9, 8};
  SamplingState::Scratch scratch;
  const int cases = context.quick ? 8 : 200;
  for (int c = 0; c < cases; ++c) {
    SamplingParams params;
    params.seed = random();
    params.temperature = c % 5 == 0 ? 0.0f : 0.3f + 0.1f * (c % 13);
    if (c % 2 == 1) params.top_k = 1 + static_cast<int32_t>(random() % 100);
    if (c % 3 == 1) params.top_p = 0.5f + 0.005f * (c % 97);
    if (c % 7 == 1) params.min_p = 0.02f;
    if (c % 4 == 1) params.repetition_penalty = 1.2f;
    if (c % 4 == 2) params.frequency_penalty = 0.4f;
    if (c % 4 == 3) params.presence_penalty = -0.6f;
    if (c % 6 == 1) params.logit_bias = {{tokens[1], 4.0f}, {3, -100.0f}};
    if (c % 6 == 2) {
      params.min_tokens = 4;
      params.end_tokens = {static_cast<TokenId>(random() % config.vocab_size)};
    }
    params.logprobs = c % 8 == 3 ? 5 : c % 8 == 5 ? 20 : -1;
    SamplingState state(params, 48, config.vocab_size);
    state.Append(prompt);
    FORETOKEN_ASSIGN_OR_RETURN(
        const auto drawn, RunRows(backend, session, tokens, parents, &state));
    for (int32_t r = 0; r < 12; ++r) {
      std::vector<TokenId> path;
      for (int32_t a = r; a >= 0; a = parents[a]) path.push_back(tokens[a]);
      std::reverse(path.begin(), path.end());
      FORETOKEN_ASSIGN_OR_RETURN(const Logits logits,
                                 LogitsOf(backend, session, r));
      const SampledToken want = state.Sample(logits, path, scratch);
      bool same = want.token == drawn[r].token &&
                  want.logprob == drawn[r].logprob &&
                  want.top_logprobs.size() == drawn[r].top_logprobs.size();
      for (size_t i = 0; same && i < want.top_logprobs.size(); ++i) {
        same = want.top_logprobs[i].token == drawn[r].top_logprobs[i].token &&
               want.top_logprobs[i].logprob == drawn[r].top_logprobs[i].logprob;
      }
      context.Expect(
          same, absl::StrCat("case ", c, ", row ", r, ": drew ", drawn[r].token,
                             " (", drawn[r].logprob, "), want ", want.token,
                             " (", want.logprob, ")"));
    }
  }
  return backend.Close(session);
}

}  // namespace

void CheckCommits(Context& context) {
  const auto backend = MakeGpuBackend(context, TestConfig(context), Options());
  if (!context.ExpectOk(backend.status(), "backend")) return;
  context.ExpectOk(CompareCommits(context, **backend), "commits");
}

void CheckSampler(Context& context) {
  const auto backend = MakeGpuBackend(context, TestConfig(context), Options());
  if (!context.ExpectOk(backend.status(), "backend")) return;
  context.ExpectOk(CompareSampler(context, **backend), "sampler");
}

void CheckSpeculative(Context& context) {
  const auto backend = MakeGpuBackend(context, TestConfig(context), Options());
  if (!context.ExpectOk(backend.status(), "backend")) return;
  for (const bool greedy : {true, false}) {
    context.ExpectOk(CompareSpeculative(context, **backend, greedy),
                     greedy ? "greedy" : "seeded");
  }
}

}  // namespace foretoken::gpu_tests
