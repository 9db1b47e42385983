"""The dashboards' panels and their queries, with variables resolved as Grafana
resolves them.

A Catalog is loaded once from Grafana's JSON files and is not changed afterwards, so
threads may share it. Its queries are the only ones that serve.py sends to
Prometheus: a client names a panel, a range and values of variables.
"""

import json
import math
import re

# The longest range that may be asked for, and the shortest, in seconds.
MIN_RANGE_S, MAX_RANGE_S = 60, 7 * 86400
MIN_POINTS, MAX_POINTS = 20, 1000
MAX_VALUES = 32
MAX_FILE_BYTES = 4 << 20
# Steps that Grafana rounds intervals to.
STEPS_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200,
           10800)

_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?::\w+)?\}|\[\[(\w+)\]\]")
_LABEL_VALUES = re.compile(r"label_values\(\s*([a-zA-Z_:][\w:]*)\s*,\s*([a-zA-Z_]\w*)"
                           r"\s*\)")
_LEGEND_PART = re.compile(r"\{\{\s*(.+?)\s*\}\}")
_VALUE = re.compile(r"[\w.:-]{1,253}")


class BadRequest(Exception):
    """A request outside the dashboards or their bounds; the text says why."""


class NotFound(Exception):
    """There is no such dashboard or panel."""


class Window:
    """The times of one answer: end - range .. end in equal steps, and Grafana's
    interval variables for them.

    scrape_s is how often Prometheus scrapes; no step is shorter.
    """

    def __init__(self, now, range_s, points, scrape_s):
        if not MIN_RANGE_S <= range_s <= MAX_RANGE_S:
            raise BadRequest(f"range {range_s}: want {MIN_RANGE_S}..{MAX_RANGE_S} "
                             "seconds")
        if not MIN_POINTS <= points <= MAX_POINTS:
            raise BadRequest(f"points {points}: want {MIN_POINTS}..{MAX_POINTS}")
        least = max(scrape_s, range_s / points)
        self.step = next((step for step in STEPS_S if step >= least), STEPS_S[-1])
        self.range = range_s
        # Multiples of the step, so that a refresh moves no point.
        self.end = math.floor(now / self.step) * self.step
        self.start = self.end - math.floor(range_s / self.step) * self.step
        self.count = (self.end - self.start) // self.step + 1
        rate = max(self.step + scrape_s, 4 * scrape_s)
        self.variables = {
            "__interval": f"{self.step}s",
            "__interval_ms": str(self.step * 1000),
            "__rate_interval": f"{rate}s",
            "__range": f"{range_s}s",
            "__range_s": str(range_s),
            "__range_ms": str(range_s * 1000),
        }


class Variable:
    """A query variable of a dashboard: the values of one label of one metric."""

    def __init__(self, definition):
        self.name = definition["name"]
        self.label = definition.get("label", self.name)
        query = definition["query"]
        query = query["query"] if isinstance(query, dict) else query
        match = _LABEL_VALUES.fullmatch(query)
        if match is None:
            raise ValueError(f"variable {self.name}: {query!r} is not "
                             "label_values(metric, label)")
        self.metric, self.of_label = match.groups()
        self.all_value = definition.get("allValue") or ".*"
        self.multi = definition.get("multi") or definition.get("includeAll")

    def text(self, values):
        """What a query holds for these values; for all, if there are none."""
        if not values:
            return self.all_value
        if len(values) > MAX_VALUES:
            raise BadRequest(f"{self.name}: more than {MAX_VALUES} values")
        for value in values:
            if not _VALUE.fullmatch(value):
                raise BadRequest(f"{self.name}: {value[:80]!r} is not a value")
        if not self.multi:
            return values[0]
        # A regular expression in a PromQL string, which takes one backslash away.
        escaped = [re.sub(r"[.]", r"\\\\.", value) for value in values]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def legend(template, labels, heatmap=False):
    """The name of a series, as Grafana makes it of legendFormat."""
    if heatmap:
        return labels.get("le", "")
    if template and template != "__auto":
        return _LEGEND_PART.sub(lambda part: labels.get(part[1], part[1]), template)
    rest = ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items())
                     if name != "__name__")
    return labels.get("__name__", "") + (f"{{{rest}}}" if rest else "")


def natural(name):
    """A key by which 2 comes before 10."""
    return [int(part) if part.isdecimal() else part
            for part in re.split(r"([0-9]+)", name)]


def fill(query, variables):
    """The query with its variables replaced."""
    def value(match):
        name = match[1] or match[2] or match[3]
        if name not in variables:
            raise ValueError(f"{query}: no variable {name}")
        return variables[name]
    return _VARIABLE.sub(value, query)


class Dashboard:
    """One dashboard: `text` is its file; `panels` are by id, rows left out."""

    def __init__(self, text):
        self.text = text
        self.json = json.loads(text)
        self.uid = self.json["uid"]
        self.title = self.json["title"]
        self.variables = [Variable(one) for one in self.json["templating"]["list"]
                          if one["type"] == "query"]
        self.panels = {}
        for panel in self._every_panel(self.json["panels"]):
            if panel["type"] == "row":
                continue
            if panel["id"] in self.panels:
                raise ValueError(f"{self.uid}: two panels have the id {panel['id']}")
            self.panels[panel["id"]] = panel
        # Unknown variables are found here, not by a client.
        window = Window(0, MIN_RANGE_S, MIN_POINTS, 1)
        for number in self.panels:
            self.queries(number, window, {})

    @staticmethod
    def _every_panel(panels):
        """The panels of collapsed rows lie inside them."""
        for panel in panels:
            yield panel
            yield from panel.get("panels", [])

    def queries(self, number, window, chosen):
        """[(target, query)] of a panel; `chosen` is {variable: [value]}."""
        if number not in self.panels:
            raise NotFound(f"{self.uid}: no panel {number}")
        known = {variable.name for variable in self.variables}
        for name in chosen:
            if name not in known:
                raise BadRequest(f"no variable {name[:80]!r}")
        variables = dict(window.variables)
        for variable in self.variables:
            variables[variable.name] = variable.text(chosen.get(variable.name, []))
        return [(target, fill(target["expr"], variables))
                for target in self.panels[number]["targets"]]


class Catalog:
    """All dashboards of a folder, by uid, in the order of their titles."""

    def __init__(self, folder):
        self._dashboards = {}
        for path in sorted(folder.glob("*.json")):
            if path.stat().st_size > MAX_FILE_BYTES:
                raise ValueError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
            dashboard = Dashboard(path.read_text(encoding="utf-8"))
            if dashboard.uid in self._dashboards:
                raise ValueError(f"{path}: another dashboard is {dashboard.uid}")
            self._dashboards[dashboard.uid] = dashboard
        if not self._dashboards:
            raise ValueError(f"{folder}: no dashboards")

    def __iter__(self):
        return iter(sorted(self._dashboards.values(), key=lambda one: one.title))

    def get(self, uid):
        """The dashboard; NotFound if there is none."""
        if uid not in self._dashboards:
            raise NotFound("no such dashboard")
        return self._dashboards[uid]
