"""Reads as much of PromQL as tells which metrics and labels a query uses."""

import re

# What Prometheus adds to every series that it scrapes.
TARGET_LABELS = {"job", "instance", "namespace", "pod"}

_NAME = re.compile(r"\bforetoken_\w+")
_SELECTOR = re.compile(r"\b(foretoken_\w+)\s*\{([^}]*)\}")
_MATCHER = re.compile(r'\s*(\w+)\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*(?:,|$)')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")


def _resolve(name, catalog):
    """The labels of a series called `name`, or None if nothing exports it."""
    if name in catalog:
        kind, labels = catalog[name]
        return None if kind == "histogram" else labels
    for suffix in ("_bucket", "_sum", "_count"):
        base = name[: -len(suffix)] if name.endswith(suffix) else None
        if base in catalog and catalog[base][0] == "histogram":
            labels = catalog[base][1]
            return labels | {"le"} if suffix == "_bucket" else labels
    return None


def problems(query, catalog):
    """What is wrong with a query, as a list of sentences."""
    found, known = [], set(TARGET_LABELS)
    names = set(_NAME.findall(query))
    if not names:
        found.append("uses no metric of ours")
    for name in sorted(names):
        labels = _resolve(name, catalog)
        if labels is None:
            found.append(f"{name}: no catalog has it")
        else:
            known |= labels
            if catalog.get(name, ("",))[0] == "counter" and not re.search(
                    r"\b(?:rate|increase)\(\s*" + name + r"\b", query):
                found.append(f"{name}: a counter without rate or increase")
    for name, matchers in _SELECTOR.findall(query):
        own = (_resolve(name, catalog) or set()) | TARGET_LABELS
        rest = _MATCHER.sub("", matchers)
        if rest.strip():
            found.append(f"{name}: cannot read {{{matchers}}}")
        for label in _MATCHER.findall(matchers):
            if label not in own:
                found.append(f"{name}: has no label {label}")
    for group in _GROUPING.findall(query):
        for label in filter(None, (part.strip() for part in group.split(","))):
            if label not in known:
                found.append(f"groups by {label}, which no metric in it has")
    return found
