// Options of one stage of a build: recipe, layout of its keys, resources.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_STAGE_OPTIONS_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_STAGE_OPTIONS_H_

#include <cstdint>

#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest_build/ngram_key.h"

namespace foretoken {

struct StageOptions : CrestRecipe {
  KeyLayout layout;
  uint64_t memory_bytes = 0;  // that the stage may allocate
  bool progress = true;       // bars on stderr
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_STAGE_OPTIONS_H_
