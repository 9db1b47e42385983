#include "common/infer/factory/draft_loading.h"

#include "common/infer/weight_conversion.h"

namespace foretoken {

void DraftLoading::AddFlags(Flags& flags) {
  flags.Choice(kWeightsFlag, &weights, WeightConversionChoices(), kWeightsHelp);
  flags.Int(kVocabularyFlag, &vocabulary, {0, kMaxVocabulary}, kVocabularyHelp);
}

void DraftLoading::ApplyTo(BackendOptions& backend) const {
  backend.conversion = weights;
  // Rows of the LM head that the draft model computes: the tokens of other rows
  // cannot be drafted, and the target may still emit them.
  backend.head_size = vocabulary;
}

}  // namespace foretoken
