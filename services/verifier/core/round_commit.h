// Commits the tokens of a pass to a session: the acceptance walk and the report
// of a round.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_ROUND_COMMIT_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_ROUND_COMMIT_H_

#include <cstdint>
#include <vector>

#include "common/engine/engine_report.h"
#include "common/speculation/round.h"
#include "services/verifier/core/session.h"

namespace foretoken::verifier {

// Appends a token to the session's text; a stop token, the end of what its
// constraint allows or the length limit sets its finish reason.
void CommitToken(Session& session, TokenId token);

// Walks the session's round, whose rows gave `outputs` (by row; moved from),
// and commits the accepted path to its text. Sets `rows` to the rows whose KV
// must be committed.
RoundResult CommitRound(Session& session, const PassStats& pass,
                        std::vector<SampledToken>& outputs,
                        std::vector<int32_t>& rows);

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_ROUND_COMMIT_H_
