// Backend::States, for every backend: the final hidden states of the rows' own
// paths, whatever shares the pass.
#ifndef FORETOKEN_TESTS_UNIT_INFER_STATES_CONTRACT_H_
#define FORETOKEN_TESTS_UNIT_INFER_STATES_CONTRACT_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "common/infer/model_weights.h"
#include "common/infer/weight_types.h"
#include "tests/unit/infer/tiny_backend.h"

namespace foretoken::testing {

inline Bits RowStates(Backend& backend, SessionId session, int32_t first,
                      int32_t count) {
  Bits states(static_cast<size_t>(count) * backend.config().d_model);
  EXPECT_THAT(backend.States(session, first, count, absl::MakeSpan(states)),
              IsOk());
  return states;
}

// Runs `tokens` as a chain, and the mate's as another one with all outputs if
// it has any.
inline void RunWithMate(Backend& backend, SessionId session,
                        absl::Span<const TokenId> tokens, RowOutputs outputs,
                        SessionId mate, const std::vector<TokenId>& others) {
  const std::vector<int32_t> parents = Chain(tokens.size());
  const std::vector<int32_t> other_parents = Chain(others.size());
  std::vector<PassSession> pass;
  if (!others.empty()) {
    PassSession& other = pass.emplace_back();
    other.session = mate;
    other.tokens = others;
    other.parents = other_parents;
  }
  PassSession& own = pass.emplace_back();
  own.session = session;
  own.tokens = tokens;
  own.parents = parents;
  own.outputs = outputs;
  PassResult result;
  FORETOKEN_ASSERT_OK(backend.Forward(pass, result));
}

// Bit for bit those of one token at a time on `reference`, in chunks, with and
// without outputs, with mates, before and after commits. Both have room for
// 100 rows and two sessions of 100 tokens.
inline void ExpectStatesOfEachRowsOwnPath(Backend& backend, Backend& reference,
                                          std::mt19937& random) {
  const ModelConfig& config = backend.config();
  const std::vector<TokenId> text = RandomTokens(75, config, random);
  Bits want;
  const SessionId alone = reference.Open("", text)->session;
  for (const TokenId token : text) {
    RunWithMate(reference, alone, {token}, RowOutputs::kAllRows, -1, {});
    const Bits state = RowStates(reference, alone, 0, 1);
    want.insert(want.end(), state.begin(), state.end());
    FORETOKEN_ASSERT_OK(reference.Commit(alone, {0}));
  }
  FORETOKEN_ASSERT_OK(reference.Close(alone));
  for (const RowOutputs outputs :
       {RowOutputs::kNone, RowOutputs::kLastRow, RowOutputs::kAllRows}) {
    for (const int chunk : {13, 31, 75}) {
      const SessionId session = backend.Open("", text)->session;
      const SessionId mate = backend.Open("", {})->session;
      Bits got;
      for (size_t begin = 0; begin < text.size(); begin += chunk) {
        const auto part = absl::MakeConstSpan(text).subspan(begin, chunk);
        const auto rows = static_cast<int32_t>(part.size());
        RunWithMate(backend, session, part, outputs, mate,
                    RandomTokens(random() % 9, config, random));
        const Bits states = RowStates(backend, session, 0, rows);
        std::vector<int32_t> path(part.size());
        for (int32_t r = 0; r < rows; ++r) path[r] = r;
        FORETOKEN_ASSERT_OK(backend.Commit(session, path));
        EXPECT_TRUE(
            SameBits(RowStates(backend, session, rows - 1, 1),
                     Bits(states.end() - config.d_model, states.end())));
        got.insert(got.end(), states.begin(), states.end());
      }
      EXPECT_TRUE(SameBits(got, want))
          << "chunks of " << chunk << ", outputs " << static_cast<int>(outputs);
      FORETOKEN_ASSERT_OK(backend.Close(session));
      FORETOKEN_ASSERT_OK(backend.Close(mate));
    }
  }
}

// The LM head's products with the states are the logits, up to the rounding of
// its input to bf16 (half a unit in the last place is 2^-9 of a number) and of
// the sum. `weights` are those of the backend, not quantised.
inline void ExpectStatesAreWhatTheHeadReads(Backend& backend,
                                            const ModelWeights& weights,
                                            std::mt19937& random) {
  const ModelConfig& config = backend.config();
  const WeightTensor& head = weights.output();
  std::vector<float> matrix(static_cast<size_t>(head.size()));
  ConvertToFloat32(head.type, head.data, absl::MakeSpan(matrix));
  const std::vector<TokenId> text = RandomTokens(40, config, random);
  const SessionId session = backend.Open("", text)->session;
  RunWithMate(backend, session, text, RowOutputs::kAllRows, -1, {});
  const Bits states = RowStates(backend, session, 0, 40);
  for (int32_t row = 0; row < 40; ++row) {
    const Bits logits = RowLogits(backend, session, row);
    const float* state = &states[static_cast<size_t>(row) * config.d_model];
    for (int32_t id = 0; id < config.vocab_size; ++id) {
      double sum = 0, size = 0;
      for (int32_t i = 0; i < config.d_model; ++i) {
        const double product =
            double{state[i]} * matrix[int64_t{id} * config.d_model + i];
        sum += product;
        size += std::abs(product);
      }
      ASSERT_LE(std::abs(sum - logits[id]), size / 256) << row << " " << id;
    }
  }
  FORETOKEN_ASSERT_OK(backend.Close(session));
}

inline void ExpectStatesRefuseOtherRows(Backend& backend) {
  const ModelConfig& config = backend.config();
  const SessionId session = backend.Open("", {})->session;
  const SessionId other = backend.Open("", {})->session;
  Bits states(3 * config.d_model);
  const auto code = [&](SessionId id, int32_t first, int32_t count,
                        int64_t size) {
    return backend.States(id, first, count, absl::MakeSpan(states).first(size))
        .code();
  };
  const int64_t width = config.d_model;
  EXPECT_EQ(code(session, 0, 1, width), absl::StatusCode::kFailedPrecondition);
  const std::vector<TokenId> text = {1, 2, 3};
  RunWithMate(backend, session, text, RowOutputs::kNone, -1, {});
  EXPECT_EQ(code(session, 0, 3, 3 * width), absl::StatusCode::kOk);
  EXPECT_EQ(code(other, 0, 1, width), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(session, 1, 3, 3 * width), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(session, -1, 1, width), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(session, 0, 0, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(session, 0, 2, 2 * width - 1),
            absl::StatusCode::kInvalidArgument);
  FORETOKEN_ASSERT_OK(backend.Close(session));
  FORETOKEN_ASSERT_OK(backend.Close(other));
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_INFER_STATES_CONTRACT_H_
