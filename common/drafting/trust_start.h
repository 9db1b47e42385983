// Initial trust factors of a new scope, as ten times their natural logarithm:
// the rounded result of six passes of the online learning of trust.h over the
// main recorded set (Vicuna-7B-v1.3 on Spec-Bench, 392 requests, all sources, a
// 10 MB chat prior, shared rate 0.02). Online learning goes on from here. In
// short: trust in the prior falls with the length of its context; outputs of
// other requests are worth less than the request's own text; counts that
// disagree are worth less than their number suggests; and the longer a copy has
// been right, the more it is worth.
#ifndef FORETOKEN_COMMON_DRAFTING_TRUST_START_H_
#define FORETOKEN_COMMON_DRAFTING_TRUST_START_H_

#include <array>
#include <cstdint>

namespace foretoken {

// Indexed by TrustKind::shared.
// clang-format off
inline constexpr std::array<int8_t, 184> kTrustStart = {
    // Prior: one row per context length 1..5; columns: backoff mass, high to
    // low.
    0, 2, 1, 3, 2, 0, -4, 4, 1, 1,
    -7, -7, -8, -10, -7, -3, -5, -3, 4, -5,
    -10, -6, -8, -7, -3, -6, -2, -1, -2, -4,
    -17, -14, -14, -14, -14, -10, -9, -10, -5, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    // Request counts: one row per match length 1..5. Columns: seen once; one
    // continuation, seen 2..4 and 5.. times; many continuations for the count,
    // seen ..8 and 9.. times; few, seen ..20 and 21.. times.
    2, 6, 9, -3, -1, 2, 6,
    -2, -2, 2, -7, -7, -3, -2,
    -4, 0, -3, -10, -7, -4, -2,
    -2, -4, -5, -12, -7, -7, -1,
    -2, -7, -1, -16, -2, -5, -3,
    // Request copies: 6, 7, 8.., 10.., 13.., 17.., 25.., 33.. tokens long; then
    // 1..8 tokens after a wrong token.
    -22, -11, -9, -5, -2, -1, 7, 12,
    -30, -3, -2, 3, 5, 11, 21, 27,
    // History counts: rows and columns as above.
    -14, -18, -9, -19, -15, -17, -6,
    -17, -14, -8, -17, -20, -11, -17,
    -8, -10, -18, -9, -11, -14, -1,
    -6, -11, -13, -10, -6, -8, -1,
    -9, -8, -5, -6, -3, -4, -1,
    // History copies: as above.
    -24, -15, -10, -3, 8, 11, 14, 20,
    -28, -11, -3, 4, 9, 13, 21, 27,
    // Candidates recycled within the request: after one token, after two.
    // Columns: share of the best candidate, from 0, 0.2, 0.35, 0.5, 0.65, 0.8,
    // 0.9 and 0.97 on.
    0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0,
    // Recycled from earlier requests: as above.
    -10, -10, -10, -10, -10, -10, -10, -10,
    -10, -10, -10, -10, -10, -10, -10, -10,
};
// clang-format on

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_TRUST_START_H_
