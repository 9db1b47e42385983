#include "common/infer/cuda/device_pass_builder.h"

#include <algorithm>
#include <limits>

#include "common/sampling/sampler.h"

namespace foretoken {
namespace {

static_assert(kDevicePageTokens == kKvPageTokens);

template <typename T>
DeviceSpan<T> SpanOf(const std::vector<T>& values) {
  return {values.data(), static_cast<int32_t>(values.size())};
}

template <typename T>
int32_t SizeOf(const std::vector<T>& values) {
  return static_cast<int32_t>(values.size());
}

bool BansEnds(const SamplingParams& params) {
  return params.min_tokens > 0 && !params.end_tokens.empty();
}

// True if only the largest logit can be drawn.
bool IsArgMax(const SamplingState& state) {
  const SamplingParams& params = state.params();
  // Penalties, and a bias, may raise another logit to the top. top_k, top_p and
  // min_p never remove the largest one.
  return params.temperature == 0.0f && !state.counts_tokens() &&
         params.logit_bias.empty();
}

}  // namespace

int32_t DevicePassBuilder::SlotOf(absl::Span<const int32_t> page_table,
                                  int64_t position) {
  return page_table[position / kDevicePageTokens] * kDevicePageTokens +
         static_cast<int32_t>(position % kDevicePageTokens);
}

DevicePass DevicePassBuilder::Build(const PassPlan& plan,
                                    absl::Span<const PassSession> pass,
                                    const KvCache& cache) {
  Clear();
  AddRows(plan);
  AddTiles(plan);
  for (size_t s = 0; s < plan.sessions.size(); ++s) {
    const PlanSession& planned = plan.sessions[s];
    DeviceSession session;
    session.first_row = planned.first_row;
    session.rows = planned.rows;
    // The page list of all sessions is one array; a session has its range of
    // it.
    session.page_begin = SizeOf(page_list_);
    session.page_count = SizeOf(planned.pages);
    page_list_.insert(page_list_.end(), planned.pages.begin(),
                      planned.pages.end());
    AddSampling(planned, pass[s], session);
    // `planned.pages` are the pages that are committed whole; the session's
    // table also has those that its next tokens go to.
    AddCommitSlots(plan, planned, *cache.PageTable(planned.id), session);
    sessions_.push_back(session);
    AddLogprobs(planned, pass[s]);
  }
  DevicePass built;
  built.rows = SpanOf(rows_);
  built.sessions = SpanOf(sessions_);
  built.pages = SpanOf(page_list_);
  built.row_tiles = SpanOf(row_tiles_);
  built.tiles = SpanOf(tiles_);
  built.outputs = SpanOf(outputs_);
  built.samplings = SpanOf(samplings_);
  built.counts = SpanOf(counts_);
  built.biases = SpanOf(biases_);
  built.commit_slots = SpanOf(commit_slots_);
  return built;
}

void DevicePassBuilder::Clear() {
  rows_.clear();
  sessions_.clear();
  page_list_.clear();
  row_tiles_.clear();
  tiles_.clear();
  outputs_.clear();
  samplings_.clear();
  counts_.clear();
  biases_.clear();
  commit_slots_.clear();
}

void DevicePassBuilder::AddRows(const PassPlan& plan) {
  for (const PlanRow& source : plan.rows) {
    // Tiles are shared between rows of one session (their common ancestors), so
    // rows hold indices of tiles.
    DeviceRow row;
    row.token = source.token;
    row.position = static_cast<int32_t>(source.position);
    row.session = source.session;
    row.tile_begin = SizeOf(row_tiles_);
    row.tile_count = SizeOf(source.tiles);
    row.last_keys = source.last_keys;
    row.parent = source.parent;
    row_tiles_.insert(row_tiles_.end(), source.tiles.begin(),
                      source.tiles.end());
    rows_.push_back(row);
  }
  for (size_t i = 0; i < plan.output_rows.size(); ++i) {
    const int32_t row = plan.output_rows[i];
    rows_[row].output = static_cast<int32_t>(i);
    DeviceOutput output;
    output.row = row;
    // The drawn token comes one position after its row; noise is keyed by that
    // position, so the same token is drawn whatever the shape of the pass.
    output.position = plan.rows[row].position + 1;
    outputs_.push_back(output);
  }
}

void DevicePassBuilder::AddTiles(const PassPlan& plan) {
  for (const PlanTile& source : plan.tiles) {
    DeviceTile tile;
    int32_t i = 0;
    for (; i < source.committed; ++i) {
      tile.slots[i] = source.page * kDevicePageTokens + i;
    }
    for (const int32_t row : source.rows) tile.slots[i++] = ScratchSlot(row);
    // DeviceTile has no initializer: without this the kernels would read
    // slots of another tile.
    std::fill(tile.slots + i, tile.slots + kDevicePageTokens, -1);
    tiles_.push_back(tile);
  }
}

void DevicePassBuilder::AddCommitSlots(const PassPlan& plan,
                                       const PlanSession& source,
                                       absl::Span<const int32_t> page_table,
                                       DeviceSession& session) {
  session.commit_begin = SizeOf(commit_slots_);
  // A walk starts at a single root with an output; a prefill's root has none.
  if (source.rows > 1 && rows_[source.first_row].output < 0) return;
  int64_t deepest = 0;
  for (int32_t r = source.first_row; r < source.first_row + source.rows; ++r) {
    // Two roots: which of them continues the context is unknown until the
    // target's token is drawn, so there is no walk.
    if (r > source.first_row && plan.rows[r].parent == kRootParent) return;
    deepest = std::max(deepest, plan.rows[r].position);
  }
  const int64_t held =
      static_cast<int64_t>(page_table.size()) * kDevicePageTokens;
  // A walk must not write past the pages that the session holds; the rows
  // beyond are moved by CommitRows, once it has more.
  const int64_t end = std::min(deepest + 1, held);
  for (int64_t position = source.committed; position < end; ++position) {
    commit_slots_.push_back(SlotOf(page_table, position));
  }
  session.commit_count = SizeOf(commit_slots_) - session.commit_begin;
}

// (Of more than the device keeps, none: they are taken from the logits.)
void DevicePassBuilder::AddLogprobs(const PlanSession& planned,
                                    const PassSession& source) {
  const int32_t reported =
      source.sampling == nullptr ? -1 : source.sampling->reported();
  if (reported < 0 || reported > kDeviceTopTokens) return;
  for (int32_t i = 0; i < planned.outputs; ++i) {
    outputs_[planned.first_output + i].logprobs = 1;
  }
}

void DevicePassBuilder::AddSampling(const PlanSession& planned,
                                    const PassSession& source,
                                    DeviceSession& session) {
  // Without sampling the device takes the arg max, the default of
  // DeviceSession.
  if (source.sampling == nullptr || planned.outputs == 0) return;
  const SamplingState& state = *source.sampling;
  const SamplingParams& params = state.params();
  const bool bans = BansEnds(params);
  // Most sessions at temperature 0 end here, and the device skips the whole
  // sampler for them.
  if (IsArgMax(state) && !bans) return;

  DeviceSampling sampling;
  sampling.temperature = params.temperature;
  sampling.top_p = params.top_p;
  sampling.min_p = params.min_p;
  sampling.top_k = params.top_k;
  sampling.repetition_penalty = params.repetition_penalty;
  sampling.presence_penalty = params.presence_penalty;
  sampling.frequency_penalty = params.frequency_penalty;
  sampling.seed = params.seed;
  sampling.count_begin = SizeOf(counts_);
  for (const auto& [token, count] : state.output_counts()) {
    counts_.push_back({token, count});
  }
  sampling.counts = SizeOf(counts_) - sampling.count_begin;
  sampling.bias_begin = SizeOf(biases_);
  for (const auto& [token, bias] : params.logit_bias) {
    biases_.push_back({token, bias});
  }
  sampling.biases = SizeOf(biases_) - sampling.bias_begin;
  session.sampling = SizeOf(samplings_);
  samplings_.push_back(sampling);

  // Bans follow the session's biases in the same array, so that an output can
  // have both with no copy of its own.
  const int32_t ban_begin = SizeOf(biases_);
  if (bans) {
    for (const TokenId token : params.end_tokens) {
      biases_.push_back({token, -std::numeric_limits<float>::infinity()});
    }
  }
  for (int32_t i = 0; i < planned.outputs; ++i) {
    DeviceOutput& output = outputs_[planned.first_output + i];
    if (state.counts_tokens()) {
      AddPathCounts(source, output.row - planned.first_row, output);
    }
    // min_tokens counts output tokens; the position tells per row how many
    // there would be.
    if (bans && output.position - state.prompt_length() < params.min_tokens) {
      output.ban_begin = ban_begin;
      output.bans = SizeOf(params.end_tokens);
    }
  }
}

void DevicePassBuilder::AddPathCounts(const PassSession& source, int32_t row,
                                      DeviceOutput& output) {
  const SamplingState& state = *source.sampling;
  PathTokens(source, row, path_);
  path_counts_.clear();
  for (size_t i = 0; i < path_.size(); ++i) {
    const bool is_output =
        state.length() + static_cast<int64_t>(i) >= state.prompt_length();
    // Counts are set also for tokens of the prompt, with 0: the repetition
    // penalty applies to every token seen, the presence and frequency penalties
    // to output only.
    path_counts_[path_[i]] += is_output ? 1 : 0;
  }
  output.count_begin = SizeOf(counts_);
  for (const auto& [token, count] : path_counts_) {
    // These replace the session's counts for this output, so they have to
    // include them.
    const auto before = state.output_counts().find(token);
    counts_.push_back(
        {token,
         count + (before == state.output_counts().end() ? 0 : before->second)});
  }
  output.counts = SizeOf(counts_) - output.count_begin;
}

}  // namespace foretoken
