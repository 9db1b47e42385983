"""The other scripts that measure for papers.md, one after the other.

Each keeps what it has measured, so that a run that was stopped goes on where it
was; ouroboros_report.py alone measures all of its page again.
"""
import pathlib
import subprocess
import sys

from progress import Progress

HERE = pathlib.Path(__file__).resolve().parent


def commands(args):
    """[script, flags...] in the order in which they run."""
    binaries = pathlib.Path(args.foretoken).resolve().parent
    foretoken = ["--foretoken", str(binaries / "foretoken")]
    data = ["--data", args.data]
    again = ["--again"] if args.again else []
    crest = ["crest_report.py", *foretoken, *data]
    if args.python_corpus:
        crest += ["--python-corpus", *args.python_corpus]
    agreement = ["ouroboros_agreement.py"]
    return [
        crest,
        ["crest_lookups.py", *foretoken, "--bench",
         str(binaries / "bench_crest_postgres"), *data, *again],
        ["ouroboros_report.py", "--bench",
         str(binaries / "bench_draft_worker")],
        ["draft_kv_report.py", "--bench", str(binaries / "bench_draft_worker"),
         *again],
        [*agreement, "--bench", str(binaries / "bench_agreement"), *data,
         *again],
        [*agreement, "--times", str(binaries / "foretoken"), *again],
        ["speedup_report.py", *foretoken, *data, "--work", args.work]]


def run(args):
    """Runs all of them; raises CalledProcessError where one fails."""
    steps = commands(args)
    with Progress("reports", len(steps)) as bar:
        for step in steps:
            bar.begin(step[0])
            subprocess.run([sys.executable, str(HERE / step[0]), *step[1:]],
                           check=True)
            bar.end(step[0])
