#include "common/text/tokenizer.h"
