"""Programs and packages that the checks need, and how a check ends without."""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What tools/deps --deploy brings.
BROUGHT = ROOT / ".cache/deploy"
SKIPPED = 77


def find(name):
    """The program's path: $NAME, what tools/deps brought, PATH; or None."""
    named = os.environ.get(name.upper())
    if named:
        return shutil.which(named)
    return shutil.which(BROUGHT / "bin" / name) or shutil.which(name)


def skip(without):
    print(f"skipped: {without} (tools/deps --deploy)")
    sys.exit(SKIPPED)


def tool(name):
    """The program's path; ends the check as skipped where it is missing."""
    path = find(name)
    if path is None:
        skip(f"no {name} here, or set {name.upper()}")
    return path


def package(name):
    """The Python package; ends the check as skipped where it is missing."""
    path = str(BROUGHT / "python")
    if path not in sys.path:
        sys.path.insert(0, path)
    try:
        return __import__(name)
    except ImportError as error:
        skip(f"no Python package {name}: {error}")


def run(*command, fails=False):
    """The command's output; the check ends if it fails, or if it does not."""
    done = subprocess.run([str(part) for part in command],
                          capture_output=True, text=True, check=False)
    if (done.returncode != 0) != fails:
        print(done.stdout[-4000:], done.stderr[-4000:])
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}")
    return done.stdout + (done.stderr if fails else "")


def report(problems):
    for problem in problems:
        print(problem)
    return 1 if problems else 0
