#include "common/sampling/sampling_params.h"
#include "common/sampling/sampler.h"
