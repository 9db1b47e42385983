// How a draft model is loaded, and its flags: the draft worker's, those of
// services that run one, and the command line's.
#ifndef FORETOKEN_COMMON_INFER_FACTORY_DRAFT_LOADING_H_
#define FORETOKEN_COMMON_INFER_FACTORY_DRAFT_LOADING_H_

#include <cstdint>
#include <string>

#include "common/config/flags.h"
#include "common/infer/factory/backend_factory.h"

namespace foretoken {

struct DraftLoading {
  std::string weights = "auto";  // of WeightConversionChoices()
  int32_t vocabulary = 32768;    // ids whose logits are computed; 0: all

  static constexpr char kWeightsFlag[] = "draft-weights";
  static constexpr char kWeightsHelp[] =
      "Type that the draft model's matrices are converted to as they are "
      "loaded: keep, q8_0, q4_0, or auto for q4_0 where passes gain from it. "
      "Drafts change, output does not";
  static constexpr char kVocabularyFlag[] = "draft-vocabulary";
  static constexpr char kVocabularyHelp[] =
      "Draft only this many ids of the vocabulary, those that a prior counts "
      "most and then the lowest, and compute no logits for the others; 0 for "
      "all";
  static constexpr int32_t kMaxVocabulary = 1 << 30;

  // --draft-weights --draft-vocabulary
  void AddFlags(Flags& flags);
  void ApplyTo(BackendOptions& backend) const;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_FACTORY_DRAFT_LOADING_H_
