"""The commands of README.md, CONTRIBUTING.md, docs/ and the services' pages.

    documented_commands.py BINARIES
        every command of a program that is built here exists, with every option
        that the page gives it, as the program's own --help has them; scripts of
        the repository know the options that they are given
    documented_commands.py --curl FILE...
        the curl commands of these pages, one a line
    documented_commands.py --list
        all commands, one a line, with page and line

Exit status 1 and one line for every command that is wrong.
"""

import functools
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "helm/README.md",
         "services/*/README.md", "common/infer/cuda/README.md")
_SCRIPT = re.compile(r"(\./)?((tools|tests|k8s)/[\w/.]+)$")
_PROGRAM = re.compile(
    r"(build/release/bin/)?((foretoken|bench_|serve_bench)[\w-]*)$")
_OPTION = re.compile(r"--[a-z][a-z0-9-]*")
_WORD = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*$")


def code(text):
    """(line, code) of every line in a fence and every text in backquotes."""
    fenced, held, start = False, "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced:
            start = start if held else number
            # A prompt, where the page also shows what the command prints.
            held += line.removesuffix("\\").removeprefix("$ ")
            # A quoted text or a backslash goes on in the next line.
            if line.endswith("\\") or (held.startswith("curl") and
                                       held.count("'") % 2):
                continue
            yield start, held
            held = ""
        else:
            for quoted in re.findall(r"`([^`]+)`", line):
                yield number, quoted


def commands():
    """(page, line, command) of everything that looks like a command."""
    for pattern in PAGES:
        for page in sorted(ROOT.glob(pattern)):
            name = page.relative_to(ROOT).as_posix()
            for line, text in code(page.read_text(encoding="utf-8")):
                text = text.split("  #")[0].strip()
                first = text.split(" ")[0]
                script = _SCRIPT.match(first)
                if script and (ROOT / script[2]).is_dir():  # the map
                    continue
                if (script or _PROGRAM.match(first) or
                        first == "curl") and " " in text:
                    yield name, line, text


def words_of(text):
    try:
        return shlex.split(text)
    except ValueError:  # an apostrophe of a sentence
        return text.split()


@functools.cache
def help_of(program, *words):
    """What `program words --help` prints; None if that fails."""
    done = subprocess.run([program, *words, "--help"], capture_output=True,
                          text=True, timeout=60, check=False)
    return done.stdout + done.stderr if done.returncode == 0 else None


def check_program(program, words):
    """What is wrong with a command of a program, or None."""
    command = []
    for word in words:
        if not _WORD.match(word) or help_of(program, *command, word) is None:
            break
        command.append(word)
    text = help_of(program, *command) or ""
    known = set(_OPTION.findall(text))
    return unknown(words, known)


def check_script(script, words):
    if not script.exists():
        return "no such file"
    text = script.read_text(encoding="utf-8")
    return unknown(words, set(_OPTION.findall(text)))


def unknown(words, known):
    given = [word.split("=")[0] for word in words if _OPTION.match(word)]
    missing = [option for option in given if option not in known]
    return f"unknown: {' '.join(missing)}" if missing else None


def main():
    if sys.argv[1:] == ["--list"]:
        for page, line, text in commands():
            print(f"{page}:{line}: {text}")
        return
    if sys.argv[1:2] == ["--curl"]:
        for page, _, text in commands():
            if page in sys.argv[2:] and text.startswith("curl "):
                print(text)
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    binaries, checked, problems = pathlib.Path(sys.argv[1]), 0, []
    for page, line, text in commands():
        first, *words = words_of(text)
        if first == "curl":
            continue
        script = _SCRIPT.match(first)
        program = _PROGRAM.match(first)
        if script:
            problem = check_script(ROOT / script[2], words)
        else:
            file = binaries / program[2]
            if not file.exists():
                problem = "no such program"
            else:
                problem = check_program(str(file), words)
        checked += 1
        if problem:
            problems.append(f"{page}:{line}: {text}: {problem}")
    if checked < 50:
        problems.append(f"only {checked} commands were found")
    print("\n".join(problems))
    print(f"{checked} commands, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
