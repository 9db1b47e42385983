#include "common/infer/rotary.h"

#include <cmath>

namespace foretoken {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Llama 3.1's context extension: low frequencies are divided by `factor`, high
// ones are kept, and those in between are interpolated.
double Llama3Frequency(double frequency, const RopeScaling& scaling) {
  const double original = scaling.original_max_positions;
  // The wavelength fits `turns` times into the original context.
  const double turns = original * frequency / (2.0 * kPi);
  if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
  if (turns > scaling.high_freq_factor) return frequency;
  // Linear between the two limits, as the model's own code does.
  const double smooth =
      (turns - scaling.low_freq_factor) /
      (static_cast<double>(scaling.high_freq_factor) - scaling.low_freq_factor);
  return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
}

}  // namespace

Rotary::Rotary(const ModelConfig& config) {
  const int half = config.head_dim / 2;
  frequencies_.reserve(half);
  for (int i = 0; i < half; ++i) {
    // theta^(-2i/d): RoFormer, section 3.2.2.
    double frequency = std::pow(static_cast<double>(config.rope_theta),
                                -2.0 * i / config.head_dim);
    switch (config.rope_scaling.type) {
      case RopeScaling::Type::kNone:
        break;
      case RopeScaling::Type::kLinear:
        frequency /= config.rope_scaling.factor;
        break;
      case RopeScaling::Type::kLlama3:
        frequency = Llama3Frequency(frequency, config.rope_scaling);
        break;
    }
    const std::vector<float>& divisors = config.rope_scaling.divisors;
    if (!divisors.empty()) frequency /= divisors[i];
    frequencies_.push_back(frequency);
  }
}

// In double: at long contexts a float angle has lost most of its fraction.
void Rotary::Angles(int64_t position, float* cosines, float* sines) const {
  for (int i = 0; i < half(); ++i) {
    const double angle = static_cast<double>(position) * frequencies_[i];
    cosines[i] = static_cast<float>(std::cos(angle));
    sines[i] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace foretoken
