"""Line plots as SVG, with the standard library alone.

    plot = Plot("Accept length against node budget", "nodes", "accept length",
                x_values=[8, 16, 32, 64])
    plot.add("prompt_lookup", [(8, 1.5), (16, 1.6)])
    plot.write("budget.svg")

The x axis is categorical: the given values stand at equal distances, as they do
in the tables beside the plots.
"""
import html
import math

# Distinct in colour and in marker, so that print and colour-blind readers can
# tell the lines apart.
COLOURS = ["#4269d0", "#e0782f", "#3ca951", "#d03a4c", "#8a5cc9", "#6b6f76",
           "#b5892d", "#2b9fb3", "#c45aa2", "#5d7a34"]
MARKERS = ["circle", "square", "diamond", "triangle"]

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 62, 220, 44, 52


def _ticks(low, high):
    """About five round values that cover low..high."""
    span = max(high - low, 1e-9)
    step = 10 ** math.floor(math.log10(span / 4))
    for factor in (1, 2, 2.5, 5, 10):
        if span / (step * factor) <= 6:
            step *= factor
            break
    first = math.floor(low / step)
    last = math.ceil(high / step)
    return [round(i * step, 10) for i in range(first, last + 1)]


def _marker(kind, x, y, colour):
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{colour}"/>'
    if kind == "square":
        return (f'<rect x="{x - 3.1:.1f}" y="{y - 3.1:.1f}" width="6.2" '
                f'height="6.2" fill="{colour}"/>')
    offsets = ([(0, -4.4), (4.4, 0), (0, 4.4), (-4.4, 0)] if kind == "diamond"
               else [(0, -4.2), (4.2, 3.4), (-4.2, 3.4)])
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in offsets)
    return f'<polygon points="{points}" fill="{colour}"/>'


class Plot:
    def __init__(self, title, x_label, y_label, x_values):
        self.title, self.x_label, self.y_label = title, x_label, y_label
        self.x_values = list(x_values)
        self.lines = []  # (name, [(x, y)])

    def add(self, name, points):
        self.lines.append((name, list(points)))

    def svg(self):
        values = [y for _, points in self.lines for _, y in points]
        ticks = _ticks(min(values), max(values))
        low, high = ticks[0], ticks[-1]
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        gap = (right - LEFT) / max(1, len(self.x_values) - 1)

        def at_x(value):
            return LEFT + gap * self.x_values.index(value)

        def at_y(value):
            return bottom - (bottom - TOP) * (value - low) / (high - low)

        def text(x, y, words, extra=""):
            return (f'<text x="{x:.1f}" y="{y:.1f}" {extra}>'
                    f'{html.escape(str(words))}</text>')

        out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
               f'height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
               f'font-family="sans-serif" font-size="12" fill="#222">',
               f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
               text(LEFT, 22, self.title, 'font-size="15"')]
        for tick in ticks:
            y = at_y(tick)
            out.append(f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" '
                       f'y2="{y:.1f}" stroke="#ddd"/>')
            out.append(text(LEFT - 8, y + 4, f"{tick:g}", 'text-anchor="end"'))
        for value in self.x_values:
            out.append(text(at_x(value), bottom + 18, value,
                            'text-anchor="middle"'))
        out.append(text((LEFT + right) / 2, HEIGHT - 12, self.x_label,
                        'text-anchor="middle"'))
        middle = (TOP + bottom) / 2
        out.append(text(16, middle, self.y_label,
                        f'text-anchor="middle" '
                        f'transform="rotate(-90 16 {middle:.1f})"'))
        for i, (name, points) in enumerate(self.lines):
            colour = COLOURS[i % len(COLOURS)]
            marker = MARKERS[i % len(MARKERS)]
            path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in points)
            out.append(f'<polyline points="{path}" fill="none" '
                       f'stroke="{colour}" stroke-width="1.8"/>')
            out += [_marker(marker, at_x(x), at_y(y), colour)
                    for x, y in points]
            legend = TOP + 8 + 19 * i
            out.append(f'<line x1="{right + 16}" x2="{right + 36}" '
                       f'y1="{legend}" y2="{legend}" stroke="{colour}" '
                       f'stroke-width="1.8"/>')
            out.append(_marker(marker, right + 26, legend, colour))
            out.append(text(right + 42, legend + 4, name))
        return "\n".join(out + ["</svg>", ""])

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg())
