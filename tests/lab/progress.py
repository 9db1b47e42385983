"""A progress bar on stderr for the reports' scripts.

    with Progress("crest, chat", len(steps)) as bar:
        for step in steps:
            bar.begin(step.name)
            step.run()
            bar.end(step.name)

On a terminal the bar stays on one line; elsewhere every step has a line.
"""
import sys
import time

WIDTH = 24


class Progress:
    def __init__(self, title, total):
        self.title, self.total = title, total
        self.done = 0
        self.started = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def __enter__(self):
        return self

    def begin(self, name):
        self._show(name)

    def end(self, name):
        self.done += 1
        self._show(f"{name}: done")

    def __exit__(self, kind, value, trace):
        if self.terminal:
            print(file=sys.stderr)

    def _show(self, name):
        filled = WIDTH * self.done // self.total if self.total else WIDTH
        seconds = int(time.monotonic() - self.started)
        line = (f"{self.title} [{'#' * filled}{'.' * (WIDTH - filled)}] "
                f"{self.done}/{self.total} {seconds} s {name}")
        if self.terminal:
            print(f"\r{line[:100]:<100}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)
