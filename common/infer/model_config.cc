#include "common/infer/model_config.h"
#include "common/infer/backend.h"
#include "common/infer/model_weights.h"
