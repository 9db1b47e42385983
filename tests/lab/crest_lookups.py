#!/usr/bin/env python3
"""Measures the crest service's look-ups through PostgreSQL.

  tests/lab/crest_lookups.py --data DATA [--again]

A private PostgreSQL holds one chat datastore twice, indexed by a B-tree and by
a hash index, both published by `foretoken crest build --name`. Statements of 1
to 1,000 n-grams go through the code that the service sends them with
(bench_crest_postgres), in three states:

  warm    every page of both datastores in the server's memory
  cold    the first statement after the server was restarted and the page cache
          dropped
  tenth   shared_buffers a tenth of the datastore, filled by earlier statements,
          and the datastore's files out of the page cache before each statement

The two indexes take turns. A step that is kept in results/crest_lookups.json is
not measured again, unless with --again. Draw the tables with papers_report.py.
Standard library only; no text and no datastore is written there.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import private_postgres
from progress import Progress
from provenance import made_by

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "results" / "crest_lookups.json"
INDEXES = ("btree", "hash")
STATES = ("warm", "cold", "tenth")
# Statements a round by keys a statement.
STATEMENTS = {1: 1000, 10: 500, 100: 200, 1000: 60}
# A statement of 1,000 keys outside memory reads about 1,000 pages.
STATEMENTS_TENTH = {1: 400, 10: 200, 100: 60, 1000: 20}
ROUNDS = 5
RESTARTS = 40
WARM_UP = 20  # past the five statements that the server plans one by one
MAX_N = 4
PLAN_STATEMENTS = 10
DROP_CACHES = pathlib.Path("/proc/sys/vm/drop_caches")


def percentile(samples, share):
    """The smallest sample that at least this share does not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def summary(rounds):
    """Percentiles over all rounds, and the median of each."""
    samples = [sample for one in rounds for sample in one]
    found = {f"p{p}_us": round(percentile(samples, p / 100), 1)
             for p in (50, 95, 99)}
    found["statements"] = len(samples)
    if len(rounds) > 1:
        found["round_p50_us"] = [round(percentile(one, 0.5), 1)
                                 for one in rounds]
    return found


class Lookups:
    def __init__(self, args, runs):
        self.args, self.runs = args, runs
        self.folder = None
        self.server = None
        self.seed = 0

    # --- the datastores ------------------------------------------------------

    def publish(self, index):
        data = pathlib.Path(self.args.data)
        done = self.command(
            self.args.foretoken, "crest", "build", "--corpus",
            *sorted((data / "corpora").glob("chat_*.jsonl.gz")), "--tokenizer",
            data / "tokenizers/llama2/tokenizer.model", "--max-n", MAX_N,
            "--top", self.args.top, "--selection", "rest", "--sample", "first",
            "--skip-invalid", "--name", index, "--index", index, "--work",
            self.folder / "work")
        meta = json.loads(done.splitlines()[-1])
        rows = self.table(index)
        total, table, indexes = map(int, self.server.query(
            f"SELECT pg_total_relation_size('{rows}'), "
            f"pg_table_size('{rows}'), pg_indexes_size('{rows}')"))
        return {"entries": meta["entries"], "nodes": meta["nodes"],
                "max_n": MAX_N, "snapshot_bytes": meta["bytes"],
                "total_bytes": total, "table_bytes": table,
                "index_bytes": indexes}

    def table(self, name):
        version, = self.server.query(
            "SELECT version FROM foretoken_crest_versions "
            f"WHERE name = '{name}' AND current")
        return f"foretoken_crest_rows_{version}"

    def files(self, name):
        """The files of the datastore's table and of its index."""
        rows = self.table(name)
        paths = self.server.script(
            f"SELECT pg_relation_filepath('{rows}'); "
            "SELECT pg_relation_filepath(indexrelid) FROM pg_index "
            f"WHERE indrelid = '{rows}'::regclass;")
        data = self.server.folder / "data"
        return [file for path in paths
                for file in (data / path).parent.iterdir()
                if file.name.split(".")[0].split("_")[0] == pathlib.Path(
                    path).name]

    def write_keys(self):
        rows = self.table(INDEXES[0])
        (self.folder / "keys").write_text("\n".join(self.server.script(
            f"SELECT key FROM {rows};")) + "\n", encoding="utf-8")

    # --- the states ----------------------------------------------------------

    def settings(self, state):
        entries = [self.runs[f"{index}/size"]["total_bytes"]
                   for index in INDEXES]
        kilobytes = (min(entries) // 10 if state == "tenth"
                     else 2 * sum(entries) + 2**26) // 1024
        # No autovacuum: it would read the tables at any time.
        return {"shared_buffers": f"{kilobytes}kB", "autovacuum": "off"}

    def warm(self, keys):
        return self.rounds(keys, STATEMENTS[keys], 0, evict=False)

    def tenth(self, keys):
        # A statement's pages replace those of earlier ones, so filling the
        # memory twice over makes every round begin alike.
        fill = 2 * self.settings_bytes("tenth") // 8192
        return self.rounds(keys, STATEMENTS_TENTH[keys], fill, evict=True)

    def settings_bytes(self, state):
        return 1024 * int(self.settings(state)["shared_buffers"][:-2])

    def rounds(self, keys, statements, fill, evict):
        found = {index: [] for index in INDEXES}
        for _ in range(ROUNDS):
            for index in INDEXES:
                result = self.bench(index, keys, statements, fill, WARM_UP,
                                    evict)
                found[index].append(result["microseconds"])
        return {index: summary(one) for index, one in found.items()}

    def cold(self, keys):
        found = {index: [] for index in INDEXES}
        for _ in range(RESTARTS):
            for index in INDEXES:
                self.server.restart(**self.settings("cold"))
                if self.drops():
                    os.sync()
                    DROP_CACHES.write_text("3", encoding="ascii")
                found[index].append(self.bench(
                    index, keys, 1, 0, 0, True)["microseconds"][0])
        return {index: dict(summary([one]), dropped=(
            "drop_caches" if self.drops() else "posix_fadvise"))
            for index, one in found.items()}

    def drops(self):
        """Whether the whole page cache is dropped, not the files' alone."""
        return self.args.drop == "all" or (
            self.args.drop == "auto" and os.access(DROP_CACHES, os.W_OK))

    def begin(self, state):
        """Brings the server into the state that its steps begin in."""
        if state == "cold":
            return
        self.server.restart(**self.settings(state))
        if state == "warm":
            for index in INDEXES:
                # A page has dozens of rows, so that this touches all of them.
                self.bench(index, 1, 1, self.runs[f"{index}/size"]["entries"],
                           0, False)

    # --- running -------------------------------------------------------------

    def bench(self, index, keys, statements, fill, warm_up, evict):
        self.seed += 1
        words = ["--name", index, "--keys", self.folder / "keys",
                 "--per-statement", keys, "--statements", statements, "--fill",
                 fill, "--warm-up", warm_up, "--seed", self.seed]
        if evict:
            words += ["--evict", *self.evicted[index]]
        result = json.loads(self.command(self.args.bench, *words))
        if result["resident_pages"]:
            raise RuntimeError(f"{result['resident_pages']} pages of {index} "
                               "stayed in the page cache")
        return result

    def plans(self, index):
        """What the server does for a statement: the first of a connection, and
        one after others like it."""
        rows = self.table(index)
        keys = (self.folder / "keys").read_text(encoding="utf-8").split()
        found = {}
        for size in STATEMENTS:
            array = "'{" + ",".join(keys[:size]) + "}'"
            lines = self.server.script(
                "PREPARE lookup(bigint[]) AS SELECT key, record FROM "
                f"{rows} WHERE key = ANY($1::bigint[]);\n"
                f"EXPLAIN EXECUTE lookup({array});\n\\o /dev/null\n" +
                f"EXECUTE lookup({array});\n" * PLAN_STATEMENTS +
                f"\\o\nEXPLAIN EXECUTE lookup({array});\n")
            nodes = [line.split(" on ")[0].split(" using ")[0].strip()
                     for line in lines if "cost=" in line and
                     not line.lstrip().startswith("->")]
            found[str(size)] = {"first": nodes[0], "later": nodes[-1]}
        return found

    def command(self, *words):
        done = subprocess.run(
            [str(word) for word in words], capture_output=True, text=True,
            check=False, env=dict(os.environ,
                                  FORETOKEN_POSTGRES_URL=self.server.url))
        if done.returncode:
            raise RuntimeError(" ".join(map(str, words)) + "\n" +
                               done.stderr[-2000:])
        return done.stdout

    def keep(self, key, value):
        self.runs[key] = dict(value, made=made_by(self.args.foretoken))
        OUT.write_text(json.dumps(self.runs, indent=1, sort_keys=True) + "\n",
                       encoding="utf-8")

    def run(self):
        missing = [(state, keys) for state in STATES for keys in STATEMENTS
                   if any(f"{index}/{state}/{keys}" not in self.runs
                          for index in INDEXES)]
        if not missing:
            return
        with (tempfile.TemporaryDirectory(prefix="lookups-") as folder,
              private_postgres.Server() as self.server,
              Progress("look-ups", len(missing) + len(INDEXES)) as bar):
            self.folder = pathlib.Path(folder)
            for index in INDEXES:
                bar.begin(f"publish {index}")
                self.keep(f"{index}/size", self.publish(index))
                bar.end(f"publish {index}")
            self.write_keys()
            for index in INDEXES:
                self.keep(f"{index}/plans", self.plans(index))
            self.evicted = {index: self.files(index) for index in INDEXES}
            now = None
            for state, keys in missing:
                name = f"{state}, {keys} a statement"
                bar.begin(name)
                if state != now:
                    self.begin(state)
                    now = state
                for index, value in getattr(self, state)(keys).items():
                    self.keep(f"{index}/{state}/{keys}", dict(
                        value, shared_buffers=self.settings_bytes(state)))
                bar.end(name)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--foretoken", default="build/release/bin/foretoken")
    parser.add_argument("--bench",
                        default="build/release/bin/bench_crest_postgres")
    parser.add_argument("--data", required=True)
    parser.add_argument("--top", type=int, default=2**40,
                        help="n-grams of a length; all that occur twice")
    parser.add_argument("--drop", choices=["auto", "all", "files"],
                        default="auto", help="cold: what leaves the page "
                        "cache, everything (where this may be asked for) or "
                        "the datastore's files")
    parser.add_argument("--again", action="store_true",
                        help="measure anew what is kept")
    args = parser.parse_args()
    if not private_postgres.available():
        sys.exit("no PostgreSQL here")
    # A run that is told to end stops its server.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(1))
    runs = {} if args.again or not OUT.exists() else json.loads(
        OUT.read_text(encoding="utf-8"))
    Lookups(args, runs).run()


if __name__ == "__main__":
    main()
