#include "common/infer/cuda/kernels/pass_layout.h"

#include <algorithm>
#include <cstring>

#include "common/infer/cuda/kernels/device_status.h"

namespace foretoken::device {
namespace {

DeviceStatus Bad(const char* what, int64_t index) {
  return MakeStatus(kInvalidArgument, "pass: bad %s of entry %lld", what,
                    static_cast<long long>(index));
}

// [begin, begin + count) of an array.
template <typename T>
bool Inside(int32_t begin, int32_t count, const DeviceSpan<T>& array) {
  // In 64 bits: begin and count may add up to more than 2^31.
  return begin >= 0 && count >= 0 &&
         int64_t{begin} + count <= int64_t{array.size};
}

bool In(int64_t value, int64_t low, int64_t end) {
  return value >= low && value < end;
}

template <typename T>
bool Present(const DeviceSpan<T>& array) {
  return array.size == 0 || (array.size > 0 && array.data != nullptr);
}

DeviceStatus CheckRows(const DevicePass& pass, const EngineShape& shape) {
  for (int32_t r = 0; r < pass.rows.size; ++r) {
    const DeviceRow& row = pass.rows.data[r];
    if (!In(row.token, 0, shape.model.vocab)) return Bad("token", r);
    if (!In(row.position, 0, shape.model.max_positions)) {
      return Bad("position", r);
    }
    if (!In(row.session, 0, pass.sessions.size)) return Bad("session", r);
    if (row.tile_count < 1 ||
        !Inside(row.tile_begin, row.tile_count, pass.row_tiles)) {
      return Bad("tiles", r);
    }
    const DeviceSession& session = pass.sessions.data[row.session];
    if (int64_t{session.page_count} + row.tile_count > shape.max_blocks) {
      return Bad("context", r);
    }
    if (!In(row.last_keys, 1, kDevicePageTokens + 1)) return Bad("keys", r);
    if (!In(row.parent, -1, r)) return Bad("parent", r);
    // Rows and outputs must name each other, as kernels go both ways.
    if (!In(row.output, -1, pass.outputs.size) ||
        (row.output >= 0 && pass.outputs.data[row.output].row != r)) {
      return Bad("output", r);
    }
  }
  return DeviceStatus();
}

DeviceStatus CheckSessions(const DevicePass& pass) {
  int64_t next_row = 0;
  int64_t commits = 0;
  for (int32_t s = 0; s < pass.sessions.size; ++s) {
    const DeviceSession& session = pass.sessions.data[s];
    if (!Inside(session.page_begin, session.page_count, pass.pages)) {
      return Bad("pages", s);
    }
    // Sessions lie one after the other without gaps; kernels find a row's
    // session by ranges.
    if (session.first_row != next_row || session.rows < 1 ||
        !Inside(session.first_row, session.rows, pass.rows)) {
      return Bad("rows of a session", s);
    }
    for (int32_t r = 0; r < session.rows; ++r) {
      const DeviceRow& row = pass.rows.data[session.first_row + r];
      if (row.session != s || (row.parent >= 0 && row.parent < next_row)) {
        return Bad("session of a row", session.first_row + r);
      }
    }
    next_row += session.rows;
    if (!Inside(session.commit_begin, session.commit_count,
                pass.commit_slots)) {
      return Bad("commit slots", s);
    }
    commits += session.commit_count;
    if (!In(session.sampling, -1, pass.samplings.size)) {
      return Bad("sampling", s);
    }
  }
  // Ranges of commit slots may not overlap: Write copies them one after the
  // other.
  if (commits > pass.commit_slots.size) {
    return Bad("shared commit slots", commits);
  }
  return next_row == pass.rows.size ? DeviceStatus()
                                    : Bad("number of rows", next_row);
}

DeviceStatus CheckOutputs(const DevicePass& pass, const EngineShape& shape) {
  for (int32_t i = 0; i < pass.outputs.size; ++i) {
    const DeviceOutput& output = pass.outputs.data[i];
    if (!In(output.row, 0, pass.rows.size) ||
        pass.rows.data[output.row].output != i) {
      return Bad("row of an output", i);
    }
    if (!Inside(output.count_begin, output.counts, pass.counts) ||
        !Inside(output.ban_begin, output.bans, pass.biases)) {
      return Bad("counts or bans of an output", i);
    }
  }
  for (int32_t i = 0; i < pass.samplings.size; ++i) {
    const DeviceSampling& sampling = pass.samplings.data[i];
    if (!Inside(sampling.count_begin, sampling.counts, pass.counts) ||
        !Inside(sampling.bias_begin, sampling.biases, pass.biases)) {
      return Bad("counts or biases of a sampling", i);
    }
    // Negated, for NaN.
    if (!(sampling.temperature >= 0.0f)) return Bad("temperature", i);
  }
  for (int32_t i = 0; i < pass.counts.size; ++i) {
    if (!In(pass.counts.data[i].token, 0, shape.model.vocab)) {
      return Bad("token of a count", i);
    }
  }
  for (int32_t i = 0; i < pass.biases.size; ++i) {
    if (!In(pass.biases.data[i].token, 0, shape.model.vocab)) {
      return Bad("token of a bias", i);
    }
  }
  return DeviceStatus();
}

DeviceStatus CheckMemory(const DevicePass& pass, int64_t pages) {
  const int64_t committed = pages * kDevicePageTokens;
  for (int32_t i = 0; i < pass.pages.size; ++i) {
    if (!In(pass.pages.data[i], 0, pages)) return Bad("page", i);
  }
  for (int32_t i = 0; i < pass.row_tiles.size; ++i) {
    if (!In(pass.row_tiles.data[i], 0, pass.tiles.size)) return Bad("tile", i);
  }
  for (int32_t i = 0; i < pass.tiles.size; ++i) {
    for (const int32_t slot : pass.tiles.data[i].slots) {
      // Committed slots, or those of this pass's own rows.
      if (!In(slot, -1, committed + pass.rows.size)) {
        return Bad("slot of a tile", i);
      }
    }
  }
  for (int32_t i = 0; i < pass.commit_slots.size; ++i) {
    // Never a scratch slot: a commit writes pages only.
    if (!In(pass.commit_slots.data[i], 0, committed)) {
      return Bad("commit slot", i);
    }
  }
  return DeviceStatus();
}

template <typename T>
void Place(const DeviceSpan<T>& array, int64_t* end, int64_t* place) {
  *place = *end;
  // 16 bytes: kernels read the arrays in vectors.
  *end = RoundUp(*end + int64_t{array.size} * sizeof(T), 16);
}

template <typename T>
void Fill(const DeviceSpan<T>& array, int64_t place, char* buffer) {
  if (array.size > 0) {
    std::memcpy(buffer + place, array.data, array.size * sizeof(T));
  }
}

// How many logits of an output change for the draw.
int64_t Changes(const DevicePass& pass, const DeviceOutput& output) {
  const int32_t sampling =
      pass.sessions.data[pass.rows.data[output.row].session].sampling;
  int64_t changes = int64_t{output.counts} + output.bans;
  if (sampling >= 0) {
    changes += int64_t{pass.samplings.data[sampling].counts} +
               pass.samplings.data[sampling].biases;
  }
  return changes;
}

}  // namespace

DeviceStatus CheckPass(const DevicePass& pass, const EngineShape& shape,
                       int64_t pages) {
  const bool present = Present(pass.rows) && Present(pass.sessions) &&
                       Present(pass.pages) && Present(pass.row_tiles) &&
                       Present(pass.tiles) && Present(pass.outputs) &&
                       Present(pass.samplings) && Present(pass.counts) &&
                       Present(pass.biases) && Present(pass.commit_slots);
  if (!present) return MakeStatus(kInvalidArgument, "pass: an array is null");
  if (pass.rows.size > shape.max_rows ||
      pass.sessions.size > shape.max_sessions ||
      pass.outputs.size > pass.rows.size) {
    return MakeStatus(kInvalidArgument,
                      "pass: %d rows, %d sessions, %d outputs, want at most "
                      "%d, %d and one a row",
                      pass.rows.size, pass.sessions.size, pass.outputs.size,
                      shape.max_rows, shape.max_sessions);
  }
  // Each check reads only places that it or an earlier check has bounded.
  FORETOKEN_DEVICE_RETURN_IF_ERROR(CheckRows(pass, shape));
  FORETOKEN_DEVICE_RETURN_IF_ERROR(CheckSessions(pass));
  FORETOKEN_DEVICE_RETURN_IF_ERROR(CheckOutputs(pass, shape));
  return CheckMemory(pass, pages);
}

PassLayout::PassLayout(const DevicePass& pass, const EngineShape& shape) {
  header.rows = pass.rows.size;
  header.sessions = pass.sessions.size;
  header.outputs = pass.outputs.size;
  header.queries = pass.rows.size * shape.group;
  for (int32_t s = 0; s < pass.sessions.size; ++s) {
    const int tasks = TaskCount(pass.sessions.data[s].rows, shape.group);
    header.tasks += tasks;
    session_tasks = std::max(session_tasks, tasks);
    header.commits += pass.sessions.data[s].commit_count;
  }
  // At least one, also for a pass whose rows have one block.
  int32_t blocks = 1;
  for (int32_t r = 0; r < pass.rows.size; ++r) {
    const DeviceRow& row = pass.rows.data[r];
    blocks = std::max(
        blocks, pass.sessions.data[row.session].page_count + row.tile_count);
  }
  header.chunks = ChunkCount(blocks);
  for (int32_t i = 0; i < pass.outputs.size; ++i) {
    saved_logits += Changes(pass, pass.outputs.data[i]);
  }

  int64_t end = RoundUp(sizeof(PassHeader), 16);
  Place(pass.rows, &end, &header.rows_at);
  Place(pass.sessions, &end, &header.sessions_at);
  Place(pass.pages, &end, &header.pages_at);
  Place(pass.row_tiles, &end, &header.row_tiles_at);
  Place(pass.tiles, &end, &header.tiles_at);
  Place(pass.outputs, &end, &header.outputs_at);
  Place(pass.samplings, &end, &header.samplings_at);
  Place(pass.counts, &end, &header.counts_at);
  Place(pass.biases, &end, &header.biases_at);
  // Copied without gaps, so their number and not the array's size counts.
  Place(DeviceSpan<int32_t>{nullptr, header.commits}, &end,
        &header.commit_slots_at);
  Place(DeviceSpan<AttentionTask>{nullptr, header.tasks}, &end,
        &header.tasks_at);
  Place(DeviceSpan<int64_t>{nullptr, pass.outputs.size}, &end,
        &header.saved_at);
  bytes = end;
}

void PassLayout::Write(const DevicePass& pass, const EngineShape& shape,
                       void* buffer) const {
  char* out = static_cast<char*>(buffer);
  std::memcpy(out, &header, sizeof(header));
  Fill(pass.rows, header.rows_at, out);
  Fill(pass.sessions, header.sessions_at, out);
  Fill(pass.pages, header.pages_at, out);
  Fill(pass.row_tiles, header.row_tiles_at, out);
  Fill(pass.tiles, header.tiles_at, out);
  Fill(pass.outputs, header.outputs_at, out);
  Fill(pass.samplings, header.samplings_at, out);
  Fill(pass.counts, header.counts_at, out);
  Fill(pass.biases, header.biases_at, out);
  // Commit slots without gaps, so that the walk writes a row for each.
  auto* copied = reinterpret_cast<DeviceSession*>(out + header.sessions_at);
  auto* slots = reinterpret_cast<int32_t*>(out + header.commit_slots_at);
  int32_t commits = 0;
  for (int32_t s = 0; s < pass.sessions.size; ++s) {
    const DeviceSession& session = pass.sessions.data[s];
    copied[s].commit_begin = commits;
    std::copy_n(pass.commit_slots.data + session.commit_begin,
                session.commit_count, slots + commits);
    commits += session.commit_count;
  }
  auto* task = reinterpret_cast<AttentionTask*>(out + header.tasks_at);
  for (int32_t s = 0; s < pass.sessions.size; ++s) {
    const DeviceSession& session = pass.sessions.data[s];
    const int32_t queries = session.rows * shape.group;
    for (int32_t q = 0; q < queries; q += kTaskQueries) {
      *task++ = {s, q, session.first_row * shape.group + q};
    }
  }
  // Where each output saves the logits that its penalties and bans change, so
  // that they can be put back.
  auto* saved = reinterpret_cast<int64_t*>(out + header.saved_at);
  int64_t next = 0;
  for (int32_t i = 0; i < pass.outputs.size; ++i) {
    saved[i] = next;
    next += Changes(pass, pass.outputs.data[i]);
  }
}

}  // namespace foretoken::device
