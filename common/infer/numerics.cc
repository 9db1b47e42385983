#include "common/infer/numerics.h"

#include "absl/strings/str_format.h"
#include "common/base/digest.h"

namespace foretoken {

// %a prints the exact bits of a float: the fingerprint must not depend on
// decimal rounding.
std::string NumericConfig(const ModelConfig& config) {
  const RopeScaling& rope = config.rope_scaling;
  std::string text = absl::StrFormat(
      "%s;shape=%d,%d,%d,%d,%d,%d,%d;eps=%a;theta=%a;"
      "rope=%d,%a,%a,%a,%d;flags=%d%d%d%d%d",
      ModelFamilyName(config.family), config.d_model, config.n_layers,
      config.n_heads, config.n_kv_heads, config.head_dim, config.d_ff,
      config.vocab_size, config.rms_norm_eps, config.rope_theta,
      static_cast<int>(rope.type), rope.factor, rope.low_freq_factor,
      rope.high_freq_factor, rope.original_max_positions,
      config.tied_embeddings, config.qkv_bias, config.output_bias,
      config.mlp_bias, config.qk_norm);
  for (const float divisor : rope.divisors) {
    absl::StrAppendFormat(&text, ";%a", divisor);
  }
  return text;
}

std::string ShortDigest(absl::string_view text) {
  Sha256 hash;
  hash.Update(text);
  return HexDigest(hash.Finish()).substr(0, 16);
}

}  // namespace foretoken
