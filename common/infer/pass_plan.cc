#include "common/infer/pass_plan.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/token_range.h"

namespace foretoken {
namespace {

absl::Status CheckSampling(const PassSession& source, int64_t committed,
                           const ModelConfig& config) {
  if (source.sampling == nullptr) return absl::OkStatus();
  // Penalties and noise depend on the committed text: a state that has seen
  // other tokens than the session would change the output.
  if (source.sampling->length() != committed) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "session %d: sampling state has %d tokens, the session %d",
        source.session, source.sampling->length(), committed));
  }
  if (source.sampling->vocab_size() != config.vocab_size) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "session %d: sampling state for %d tokens of vocabulary, want %d",
        source.session, source.sampling->vocab_size(), config.vocab_size));
  }
  return absl::OkStatus();
}

absl::Status CheckRow(const PassSession& source, int64_t row,
                      const ModelConfig& config) {
  const TokenId token = source.tokens[row];
  if (!InVocabulary(token, config.vocab_size)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("session %d: row %d has token %d, want 0..%d",
                        source.session, row, token, config.vocab_size - 1));
  }
  const int32_t parent = source.parents[row];
  if (parent < kRootParent || parent >= row) {
    return absl::InvalidArgumentError(
        absl::StrFormat("session %d: row %d has parent %d, want -1..%d",
                        source.session, row, parent, row - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PassPlan::Build(absl::Span<const PassSession> pass,
                             const ModelConfig& config, const KvCache& cache,
                             int32_t max_rows) {
  sessions.clear();
  rows.clear();
  tiles.clear();
  output_rows.clear();
  int64_t total = 0;
  for (const PassSession& source : pass) total += source.tokens.size();
  if (total > max_rows) {
    return absl::InvalidArgumentError(
        absl::StrFormat("pass: %d rows, want at most %d", total, max_rows));
  }
  for (const PassSession& source : pass) {
    // A plan that fails leaves nothing behind: Commit and Logits refer to the
    // last plan.
    const absl::Status status = AddSession(source, config, cache);
    if (!status.ok()) {
      // A half-made plan must not be found by a later call.
      *this = PassPlan();
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status PassPlan::AddSession(const PassSession& source,
                                  const ModelConfig& config,
                                  const KvCache& cache) {
  PlanSession session;
  session.id = source.session;
  FORETOKEN_ASSIGN_OR_RETURN(session.committed,
                             cache.CommittedLength(source.session));
  // A linear search: passes have few sessions.
  for (const PlanSession& other : sessions) {
    if (other.id == source.session) {
      return absl::InvalidArgumentError(
          absl::StrFormat("session %d: twice in one pass", source.session));
    }
  }
  if (source.tokens.empty() || source.tokens.size() != source.parents.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "session %d: %d tokens and %d parents, want equally many, at least one",
        source.session, source.tokens.size(), source.parents.size()));
  }
  FORETOKEN_RETURN_IF_ERROR(CheckSampling(source, session.committed, config));

  session.first_row = static_cast<int32_t>(rows.size());
  session.rows = static_cast<int32_t>(source.tokens.size());
  for (int32_t r = 0; r < session.rows; ++r) {
    FORETOKEN_RETURN_IF_ERROR(CheckRow(source, r, config));
    PlanRow row;
    row.session = static_cast<int32_t>(sessions.size());
    row.token = source.tokens[r];
    // The rotary position is the committed length plus the depth below row 0.
    row.position = session.committed;
    // Parents come first, so their positions are known.
    if (source.parents[r] != kRootParent) {
      row.parent = session.first_row + source.parents[r];
      row.position = rows[row.parent].position + 1;
    }
    if (row.position >= config.max_positions) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "session %d: row %d is at position %d, the model's limit is %d",
          source.session, r, row.position, config.max_positions));
    }
    rows.push_back(std::move(row));
  }
  // Full blocks are read from their pages; AddTiles handles the rest.
  // The table may have reserved pages beyond; only whole committed ones are
  // shared by all rows.
  const std::vector<int32_t>& pages = *cache.PageTable(source.session);
  session.pages.assign(pages.begin(),
                       pages.begin() + session.committed / kKvPageTokens);
  AddTiles(session, pages);
  FORETOKEN_RETURN_IF_ERROR(AddOutputs(source, session));
  sessions.push_back(std::move(session));
  return absl::OkStatus();
}

absl::Status PassPlan::AddOutputs(const PassSession& source,
                                  PlanSession& session) {
  session.first_output = static_cast<int32_t>(output_rows.size());
  const int32_t end = session.first_row + session.rows;
  switch (source.outputs) {
    case RowOutputs::kNone:
      break;
    case RowOutputs::kLastRow:
      output_rows.push_back(end - 1);
      break;
    case RowOutputs::kAllRows:
      for (int32_t r = session.first_row; r < end; ++r) {
        output_rows.push_back(r);
      }
      break;
    case RowOutputs::kListedRows:
      // Listed rows ascend strictly, so no row has two outputs.
      int32_t least = 0;
      for (const int32_t row : source.output_rows) {
        if (row < least || row >= session.rows) {
          return absl::InvalidArgumentError(
              absl::StrFormat("session %d: output row %d, want %d..%d",
                              source.session, row, least, session.rows - 1));
        }
        output_rows.push_back(session.first_row + row);
        least = row + 1;
      }
      break;
  }
  session.outputs =
      static_cast<int32_t>(output_rows.size()) - session.first_output;
  return absl::OkStatus();
}

void PassPlan::AddTiles(const PlanSession& session,
                        const std::vector<int32_t>& pages) {
  const int32_t first = session.first_row;
  // Only the block that the context ends in has committed keys beside rows of
  // this pass; its committed keys are read from the page.
  const int64_t first_block = session.committed / kKvPageTokens;
  const int32_t partial =
      static_cast<int32_t>(session.committed % kKvPageTokens);
  const auto block = [&](int32_t r) {
    // Positions of a row and its parent differ by one, so a path enters each
    // block once.
    return rows[r].position / kKvPageTokens;
  };

  // From the last row up: each row without a tile is the deepest row of a new
  // one.
  // From the deepest rows: a tile made for one serves its ancestors in the
  // block, so that rows of a chain share one.
  std::vector<int32_t> tile_of(session.rows, -1);
  for (int32_t r = first + session.rows - 1; r >= first; --r) {
    if (tile_of[r - first] >= 0) continue;
    const int32_t index = static_cast<int32_t>(tiles.size());
    PlanTile tile;
    // A tile has its deepest row's keys in path order; ancestors in the same
    // block read a prefix of it (last_keys).
    for (int32_t a = r; a != kRootParent && block(a) == block(r);
         a = rows[a].parent) {
      if (tile_of[a - first] < 0) tile_of[a - first] = index;
      tile.rows.push_back(a);
    }
    std::reverse(tile.rows.begin(), tile.rows.end());
    // Its committed keys lie in a page of the cache.
    if (block(r) == first_block && partial > 0) {
      tile.committed = partial;
      tile.page = pages[first_block];
    }
    tiles.push_back(std::move(tile));
  }
  // A row's earlier blocks are those of its ancestor at the end of the previous
  // block. Parents come first, so the ancestor is complete.
  for (int32_t r = first; r < first + session.rows; ++r) {
    PlanRow& row = rows[r];
    if (row.parent != kRootParent) {
      row.tiles = rows[row.parent].tiles;
      if (block(row.parent) == block(r)) row.tiles.pop_back();
    }
    row.tiles.push_back(tile_of[r - first]);
    row.last_keys = static_cast<int32_t>(row.position % kKvPageTokens) + 1;
  }
}

void PathTokens(const PassSession& source, int32_t row,
                std::vector<TokenId>& path) {
  path.clear();
  for (int32_t r = row; r != kRootParent; r = source.parents[r]) {
    path.push_back(source.tokens[r]);
  }
  std::reverse(path.begin(), path.end());
}

absl::Status PassPlan::CheckPath(const PlanSession& session,
                                 absl::Span<const int32_t> path) const {
  int32_t parent = kRootParent;
  for (const int32_t row : path) {
    if (row < 0 || row >= session.rows) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "session %d: commit of row %d, the last pass had rows 0..%d",
          session.id, row, session.rows - 1));
    }
    // A path that skips a row, or joins two, would commit KV computed after
    // another context.
    if (rows[session.first_row + row].parent != parent) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "session %d: commit of row %d, which is no child of the row before",
          session.id, row));
    }
    parent = session.first_row + row;
  }
  return absl::OkStatus();
}

}  // namespace foretoken
