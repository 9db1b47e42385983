// The plot of `bench modes`: each mode's ratio to `off` over the concurrency,
// with its interval. Legible on light and dark pages: the colours follow the
// reader's preference.
#ifndef FORETOKEN_TOOLS_CLI_MODE_BENCH_RATIO_PLOT_H_
#define FORETOKEN_TOOLS_CLI_MODE_BENCH_RATIO_PLOT_H_

#include <string>

#include "common/base/json_fwd.h"

namespace foretoken::mode_bench {

// An SVG document from the "runs" of a report (mode_bench_report.h). The
// concurrencies stand at equal distances; `off` is the line at 1.
std::string RatioPlot(const Json& runs);

}  // namespace foretoken::mode_bench

#endif  // FORETOKEN_TOOLS_CLI_MODE_BENCH_RATIO_PLOT_H_
