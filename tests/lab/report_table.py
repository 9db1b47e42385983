"""Tables of a report as JSON, and the Markdown that is drawn from them.

A cell is text, or [value, digits], or [value, digits, mark].
"""
import json

UNCHECKED = "†"  # a paper's number not compared with a public copy


def cell(value):
    if isinstance(value, list):
        return f"{value[0]:,.{value[1]}f}{''.join(value[2:])}"
    return "" if value is None else str(value)


def report_json(report):
    """The report as JSON, each row of a table on a line of its own."""
    lines = {}

    def marked(value):
        if isinstance(value, dict):
            return {key: [mark(row) for row in one] if key == "rows"
                    else marked(one) for key, one in value.items()}
        return [marked(one) for one in value] if isinstance(
            value, list) else value

    def mark(row):
        lines[f'"row {len(lines)}"'] = json.dumps(row)
        return f"row {len(lines) - 1}"

    text = json.dumps(marked(report), indent=1)
    for name, row in lines.items():
        text = text.replace(name, row, 1)
    return text + "\n"


def markdown(report):
    out = [f"# {report['title']}", *report["text"]]
    for paper in report["papers"]:
        out += [f"## {paper['title']}", *paper["text"]]
        for table in paper["tables"]:
            out += [f"### {table['title']}", *table["text"]]
            if table["rows"]:
                out.append(rows_of(table))
            out += [f"![{table['title']}]({plot})" for plot in table["plots"]]
    return "\n\n".join(out) + "\n"


def rows_of(table):
    return "\n".join(
        ["| " + " | ".join(table["columns"]) + " |",
         "|" + "---|" * len(table["columns"])] +
        ["| " + " | ".join(cell(c) for c in row) + " |"
         for row in table["rows"]])


def mark(paper, group):
    """The mark of a group's numbers, by what `sources` says of it."""
    return "" if paper["sources"][group]["checked"] else UNCHECKED


def sources_table(paper):
    return make_table(
        "Where the paper's numbers stand",
        ["number", "where", "compared with a public copy"],
        [[group.replace("_", " "), of["where"],
          "yes" if of["checked"] else "no"]
         for group, of in paper["sources"].items()])


def span(low, high, digits=1, sign=""):
    return f"{low:.{digits}f} to {high:.{digits}f}{sign}"


def ratio(paper, ours):
    """Ours over the paper's number, or over the nearest end of its range."""
    low, high = paper if isinstance(paper, list) else (paper, paper)
    return ours / min(max(ours, low), high)


def make_table(title, columns, rows, text=(), plots=()):
    return {"title": title, "columns": columns, "rows": rows,
            "text": list(text), "plots": list(plots)}


def against(title, rows, text=(), plots=(), theirs="paper"):
    """rows: (what, paper's, ours, digits, setting, why, mark of the paper's
    number); numbers, [low, high] or text."""
    shown = []
    for what, paper, ours, digits, setting, why, sign in rows:
        numeric = isinstance(paper, (int, float, list))
        if isinstance(paper, list):
            shown_paper = span(*paper, digits, sign)
        else:
            shown_paper = ([paper, digits, *[sign] * bool(sign)]
                           if numeric else paper)
        shown.append([what, shown_paper,
                      "not measured" if ours is None else [ours, digits],
                      [ratio(paper, ours), 2]
                      if numeric and ours is not None else "", setting, why])
    over = f"ours / {theirs.split(',')[0]}"
    return make_table(title, ["", theirs, "ours", over, "setting",
                              "why they differ"], shown, text, plots)
