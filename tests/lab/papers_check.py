"""Checks that the committed report of the papers is what its JSON gives.

Two things hold: papers.json and the plots are what papers_tables makes of the
measured JSON; papers.md and the section on the papers in docs/results.md are, to the letter,
what is drawn from papers.json.
"""
import itertools
import json
import pathlib

import papers_readme
import papers_tables
import report_table

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "docs/results.md"


def read(folder):
    """The committed files: name to text, the sources apart."""
    folder = pathlib.Path(folder)
    sources = papers_tables.read(folder)
    names = [name for name, _ in papers_tables.outputs(sources)]
    files = {name: (folder / name).read_text(encoding="utf-8")
             if (folder / name).exists() else "" for name in names}
    return {"sources": sources, "files": files,
            "readme": RESULTS.read_text(encoding="utf-8")}


def difference(name, text, drawn):
    """The first line that differs, as a list of one line, or of none."""
    lines = itertools.zip_longest(text.splitlines(), drawn.splitlines(),
                                  fillvalue="")
    for number, (is_, should) in enumerate(lines, 1):
        if is_ != should:
            return [f"{name}: line {number} is \"{is_}\", the JSON gives "
                    f"\"{should}\"; run papers_report.py"]
    return [] if text == drawn else [f"{name}: ends otherwise than the JSON "
                                     "gives; run papers_report.py"]


def faults(committed):
    """What does not fit, one line each; empty if all is well."""
    found = []
    files = committed["files"]
    for name, text in papers_tables.outputs(committed["sources"]):
        # The Markdown is compared with its JSON below.
        if name != "papers.md":
            found += difference(name, files[name], text)
    try:
        report = json.loads(files["papers.json"])
    except json.JSONDecodeError as error:
        return found + [f"papers.json: {error}"]
    found += difference("papers.md", files["papers.md"],
                        report_table.markdown(report))
    section = report["readme"]
    place = papers_readme.place(committed["readme"], section)
    name = f"docs/results.md, {section['title']}"
    if not place:
        return found + [f"{name}: no such section"]
    return found + difference(name, committed["readme"][slice(*place)],
                              papers_readme.drawn(section))
