// Samples of a /metrics page.
#ifndef FORETOKEN_TESTS_SUPPORT_METRIC_SAMPLES_H_
#define FORETOKEN_TESTS_SUPPORT_METRIC_SAMPLES_H_

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace foretoken::metrics {

// The value of one sample: `sample` is the name with its labels,
// `a_total{code="OK"}`. NotFound if the page has none.
inline absl::StatusOr<double> SampleValue(absl::string_view page,
                                          absl::string_view sample) {
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    if (!absl::ConsumePrefix(&line, sample) ||
        !absl::ConsumePrefix(&line, " ")) {
      continue;
    }
    double value = 0;
    if (absl::SimpleAtod(line, &value)) return value;
  }
  return absl::NotFoundError(absl::StrCat("metrics: no sample ", sample));
}

}  // namespace foretoken::metrics

#endif  // FORETOKEN_TESTS_SUPPORT_METRIC_SAMPLES_H_
