#include "services/gateway/adapters/client_records.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace foretoken::gateway {
namespace {

constexpr uint8_t kHandshakeRecord = 22;
constexpr uint8_t kClientHello = 1;

}  // namespace

bool ClientRecords::Follow(absl::string_view bytes) {
  if (first_ && !bytes.empty()) {
    first_ = false;
    http_ = absl::ascii_isupper(static_cast<unsigned char>(bytes.front()));
    if (static_cast<uint8_t>(bytes.front()) != kHandshakeRecord) return false;
  }
  while (!bytes.empty()) {
    if (record_left_ == 0) {
      if (Fill(record_, record_filled_, bytes) && !OnRecord()) return false;
      continue;
    }
    const absl::string_view payload = bytes.substr(0, record_left_);
    bytes.remove_prefix(payload.size());
    record_left_ -= payload.size();
    if (hellos_ && record_[0] == kHandshakeRecord && !FollowHellos(payload)) {
      return false;
    }
  }
  return true;
}

template <size_t kSize>
bool ClientRecords::Fill(std::array<uint8_t, kSize>& header, size_t& filled,
                         absl::string_view& bytes) {
  const size_t count = std::min(kSize - filled, bytes.size());
  std::copy_n(bytes.data(), count, header.begin() + filled);
  bytes.remove_prefix(count);
  filled += count;
  return filled == kSize;
}

bool ClientRecords::OnRecord() {
  record_filled_ = 0;
  record_left_ = size_t{record_[3]} << 8 | record_[4];
  return handshaking_ || record_[0] != kHandshakeRecord;
}

bool ClientRecords::FollowHellos(absl::string_view payload) {
  while (!payload.empty()) {
    if (message_left_ > 0) {
      const size_t count = std::min(message_left_, payload.size());
      payload.remove_prefix(count);
      message_left_ -= count;
      continue;
    }
    if (!Fill(message_, message_filled_, payload)) break;
    message_filled_ = 0;
    // Any other message ends this phase: no ClientHello follows it, and
    // encrypted ones may.
    hellos_ = message_[0] == kClientHello;
    if (!hellos_) break;
    message_left_ = size_t{message_[1]} << 16 | size_t{message_[2]} << 8 |
                    size_t{message_[3]};
    if (message_left_ > kMaxHelloBytes) return false;
  }
  return true;
}

}  // namespace foretoken::gateway
