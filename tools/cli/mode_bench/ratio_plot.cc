#include "tools/cli/mode_bench/ratio_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"

namespace foretoken::mode_bench {
namespace {

constexpr double kWidth = 760, kHeight = 420;
constexpr double kLeft = 62, kRight = 540, kTop = 44, kBottom = 368;
// Lines of the same place at different modes are set apart by this.
constexpr double kSpread = 7;

// Colours of the lines: contrast of at least 3 on white and on the dark
// background.
constexpr std::array kColours = {"#4a7bd8", "#d9722a", "#2f9a48", "#d8495b",
                                 "#9568d6", "#a8802a", "#2491a6", "#bf5a9c"};

constexpr char kStyle[] =
    "<style>\n"
    ".page { fill: #ffffff } text { fill: #1f2328 }\n"
    ".grid { stroke: #d8dce2 } .one { stroke: #57606a }\n"
    "@media (prefers-color-scheme: dark) {\n"
    ".page { fill: #0d1117 } text { fill: #e6edf3 }\n"
    ".grid { stroke: #30363d } .one { stroke: #9aa4b0 }\n"
    "}\n"
    "</style>\n";

struct Point {
  size_t column = 0;  // index of the concurrency
  double ratio = 0;
  double low = 0;  // the ratio where it is not known
  double high = 0;
};

struct Line {
  std::string name;
  std::vector<Point> points;
};

struct Plot {
  std::vector<std::string> columns;
  std::vector<Line> lines;
  double low = 1;
  double high = 1;
};

std::string Escaped(absl::string_view text) {
  // Names come from the command line and land in SVG text.
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// Runs are sorted by concurrency, and each has the same modes in one order.
Plot ReadRuns(const Json& runs) {
  Plot plot;
  size_t line = 0;
  Json last;
  for (const Json& run : runs) {
    const Json& concurrency = run["concurrency"];
    // A change of concurrency starts a new column, and the lines begin anew
    // with the first mode.
    if (plot.columns.empty() || concurrency != last) {
      plot.columns.push_back(concurrency.is_null()
                                 ? "trace"
                                 : absl::StrCat(concurrency.get<int>()));
      last = concurrency;
      line = 0;
    }
    if (run["baseline"].get<bool>()) continue;
    if (line == plot.lines.size()) {
      plot.lines.push_back({run["mode"].get<std::string>(), {}});
    }
    const double ratio = run["ratio_to_off"].get<double>();
    // One pair has no interval: the bar shrinks to the point.
    const auto limit = [&](const char* field) {
      return run[field].is_number() ? run[field].get<double>() : ratio;
    };
    const Point point = {plot.columns.size() - 1, ratio, limit("ratio_low"),
                         limit("ratio_high")};
    plot.low = std::min(plot.low, point.low);
    plot.high = std::max(plot.high, point.high);
    plot.lines[line++].points.push_back(point);
  }
  return plot;
}

// A round distance of about four ticks over `span`.
double TickStep(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 4)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    // At most six intervals: more labels than that would touch at this height.
    if (span / (power * factor) <= 6) return power * factor;
  }
  return power * 10;
}

// Draws a plot on an axis of round numbers.
class Canvas {
 public:
  // At least 0.1, so that modes that are all close to 1 do not fill the height
  // with noise.
  explicit Canvas(const Plot& plot)
      : plot_(plot), step_(TickStep(std::max(plot.high - plot.low, 0.1))) {
    low_ = std::floor(plot.low / step_) * step_;
    // The small addend keeps the highest point off the frame if it lies on a
    // tick.
    high_ = std::ceil(plot.high / step_ + 1e-9) * step_;
  }

  std::string Draw() {
    absl::StrAppendFormat(
        &svg_,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
        "viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"12\">\n",
        kWidth, kHeight, kWidth, kHeight);
    absl::StrAppend(&svg_, kStyle, "<rect class=\"page\" width=\"100%\" ",
                    "height=\"100%\"/>\n");
    Text(kLeft, 24, "Speed of each mode, relative to off", "font-size=\"15\"");
    DrawAxes();
    for (size_t i = 0; i < plot_.lines.size(); ++i) DrawLine(i);
    return absl::StrCat(svg_, "</svg>\n");
  }

 private:
  double X(size_t column) const {
    const double columns = static_cast<double>(plot_.columns.size());
    return kLeft +
           (kRight - kLeft) * (static_cast<double>(column) + 0.5) / columns;
  }
  double Y(double ratio) const {
    return kBottom - (kBottom - kTop) * (ratio - low_) / (high_ - low_);
  }

  void Text(double x, double y, absl::string_view words,
            absl::string_view attributes) {
    absl::StrAppendFormat(&svg_, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n",
                          x, y, attributes, Escaped(words));
  }
  void Segment(double x1, double y1, double x2, double y2,
               absl::string_view attributes) {
    absl::StrAppendFormat(&svg_,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                          "y2=\"%.1f\" %s/>\n",
                          x1, y1, x2, y2, attributes);
  }

  void DrawAxes() {
    const int ticks = static_cast<int>(std::lround((high_ - low_) / step_));
    for (int i = 0; i <= ticks; ++i) {
      const double value = low_ + i * step_;
      Segment(kLeft, Y(value), kRight, Y(value), "class=\"grid\"");
      Text(kLeft - 8, Y(value) + 4, absl::StrFormat("%g", value),
           "text-anchor=\"end\"");
    }
    Segment(kLeft, Y(1), kRight, Y(1),
            "class=\"one\" stroke-dasharray=\"5 4\"");
    for (size_t i = 0; i < plot_.columns.size(); ++i) {
      Text(X(i), kBottom + 18, plot_.columns[i], "text-anchor=\"middle\"");
    }
    Text((kLeft + kRight) / 2, kHeight - 14, "requests at once",
         "text-anchor=\"middle\"");
  }

  void DrawLine(size_t index) {
    const Line& line = plot_.lines[index];
    const char* colour = kColours[index % kColours.size()];
    const std::string stroke =
        absl::StrFormat("stroke=\"%s\" stroke-width=\"1.8\"", colour);
    // Intervals at the same column would hide each other; the lines are centred
    // on it as a group.
    const double offset =
        kSpread * (static_cast<double>(index) -
                   static_cast<double>(plot_.lines.size() - 1) / 2);
    std::string path;
    for (const Point& point : line.points) {
      const double x = X(point.column) + offset;
      absl::StrAppendFormat(&path, "%.1f,%.1f ", x, Y(point.ratio));
      Segment(x, Y(point.low), x, Y(point.high), stroke);
      for (const double end : {point.low, point.high}) {
        Segment(x - 3, Y(end), x + 3, Y(end), stroke);
      }
      absl::StrAppendFormat(
          &svg_, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.4\" fill=\"%s\"/>\n", x,
          Y(point.ratio), colour);
    }
    absl::StrAppendFormat(&svg_, "<polyline points=\"%s\" fill=\"none\" %s/>\n",
                          path, stroke);
    const double legend = kTop + 8 + 19 * static_cast<double>(index);
    Segment(kRight + 16, legend, kRight + 36, legend, stroke);
    Text(kRight + 42, legend + 4, line.name, "");
  }

  const Plot& plot_;
  const double step_;
  double low_ = 0;
  double high_ = 0;
  std::string svg_;
};

}  // namespace

std::string RatioPlot(const Json& runs) {
  const Plot plot = ReadRuns(runs);
  return Canvas(plot).Draw();
}

}  // namespace foretoken::mode_bench
