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
    session.page_begin = SizeOf(page_list_);
    session.page_count = SizeOf(planned.pages);
    page_list_.insert(page_list_.end(), planned.pages.begin(),
                      planned.pages.end());
    AddSampling(planned, pass[s], session);
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
    if (r > source.first_row && plan.rows[r].parent == kRootParent) return;
    deepest = std::max(deepest, plan.rows[r].position);
  }
  const int64_t held =
      static_cast<int64_t>(page_table.size()) * kDevicePageTokens;
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
  if (source.sampling == nullptr || planned.outputs == 0) return;
  const SamplingState& state = *source.sampling;
  const SamplingParams& params = state.params();
  const bool bans = BansEnds(params);
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
    path_counts_[path_[i]] += is_output ? 1 : 0;
  }
  output.count_begin = SizeOf(counts_);
  for (const auto& [token, count] : path_counts_) {
    const auto before = state.output_counts().find(token);
    counts_.push_back(
        {token,
         count + (before == state.output_counts().end() ? 0 : before->second)});
  }
  output.counts = SizeOf(counts_) - output.count_begin;
}

}  // namespace foretoken
