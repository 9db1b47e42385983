# Writes FILE, the definition of kCommit (common/config/version.h), if it changes.
# Run by every build: cmake -DSOURCE=DIR -DFILE=FILE -P Version.cmake
execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET)
if(commit STREQUAL "")
  set(commit "unknown")  # not a checkout
endif()
file(CONFIGURE OUTPUT "${FILE}" CONTENT [[
#include "common/config/version.h"

namespace foretoken {
const char kCommit[] = "@commit@";
}
]] @ONLY)
