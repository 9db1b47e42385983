"""The Python of README.md, run as it stands there, against foretoken serve.

    readme_examples.py BINARIES

The server has the demo pair and drafts by prompt_lookup, whose drafts depend on
nothing but the text, so that every example has one right output: the text is
that of plain decoding over HTTP, and the drafter of every token the one that an
answer over HTTP names.

Exit status 77: FORETOKEN_SDK_PYTHON (.cache/sdk/bin/python, which tools/deps --sdk
makes) lacks a package of the examples.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
SDK_PYTHON = os.environ.get("FORETOKEN_SDK_PYTHON", ".cache/sdk/bin/python")
HTTP, GRPC = "127.0.0.1:8080", "127.0.0.1:50050"  # the addresses in README
DEMO = ("tools/demo/target", "--draft-model", "tools/demo/draft",
        "--chat-template", "tests/golden/chat_templates/templates/chatml.jinja")
START_SECONDS = 240
EXAMPLE_SECONDS = 240


def example(package):
    """The one Python block of README.md that imports the package."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    found = [block for block in blocks
             if re.search(rf"^(from|import) {package}\b", block, re.M)]
    assert len(found) == 1, f"{len(found)} examples of {package} in README.md"
    return found[0]


def lacks(package):
    """Whether the SDKs' Python is missing, or the package in it."""
    try:
        done = subprocess.run([SDK_PYTHON, "-c", f"import {package}"], cwd=ROOT,
                              check=False, stderr=subprocess.DEVNULL)
    except OSError:
        return True
    return done.returncode != 0


def wait_for(log, server):
    """The addresses of HTTP and gRPC once the log has both and it serves."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        text = log.read_text(encoding="utf-8")
        http = re.search(r"HTTP on (127\.0\.0\.1:\d+)", text)
        grpc = re.search(r"listening on (127\.0\.0\.1:\d+)", text)
        if http and grpc and " serving http://" in text:
            return http[1], grpc[1]
        time.sleep(0.1)
    sys.exit(f"the server is not ready:\n{log.read_text(encoding='utf-8')}")


@contextlib.contextmanager
def serving(binaries):
    """Runs foretoken serve; the addresses of its HTTP and gRPC."""
    with tempfile.TemporaryDirectory() as scratch:
        log = pathlib.Path(scratch) / "log"
        with log.open("wb") as stderr:
            # Not by the numbers of README: several servers may run here.
            server = subprocess.Popen(
                [binaries / "foretoken", "serve", *DEMO, "--threads", "1",
                 "--mode", "prompt_lookup", "--metrics-listen", "",
                 "--http-listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"],
                cwd=ROOT, stderr=stderr)
        try:
            yield wait_for(log, server)
        finally:
            server.terminate()
            server.wait()


def output_of(code, http, grpc):
    """What the example prints, run in the root with the server's addresses."""
    code = code.replace(HTTP, http).replace(GRPC, grpc)
    done = subprocess.run([SDK_PYTHON, "-B", "-c", code], cwd=ROOT,
                          capture_output=True, text=True, check=False,
                          timeout=EXAMPLE_SECONDS)
    assert done.returncode == 0, f"the example failed:\n{done.stderr}"
    return done.stdout


def ask(http, path, body):
    request = urllib.request.Request(
        f"http://{http}{path}", json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    # Not through a proxy of the environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=EXAMPLE_SECONDS) as answer:
        return json.load(answer)


def written(code, pattern):
    """The text or number in an example that the pattern's group matches."""
    found = re.search(pattern, code)
    assert found, f"the example has no {pattern}"
    return found[1]


def check_openai(http, grpc):
    code = example("openai")
    printed = output_of(code, http, grpc)
    answer = ask(http, "/v1/chat/completions", {
        "messages": [{"role": "user",
                      "content": written(code, r'"content": "(.*?)"')}],
        "max_tokens": int(written(code, r"max_tokens=(\d+)")),
        "temperature": 0, "speculation": "off"})
    text, _, summary = printed.rstrip("\n").rpartition("\n")
    assert text == answer["choices"][0]["message"]["content"], printed
    assert float(written(summary, r"^(\d+\.\d\d) tokens a round$")) > 1, printed


def check_grpc(http, grpc):
    code = example("grpc")
    printed = output_of(code, http, grpc)
    answer = ask(http, "/v1/completions", {
        "prompt": written(code, r'text="(.*?)"'),
        "max_tokens": int(written(code, r"max_tokens=(\d+)")),
        "temperature": 0, "foretoken": {"tokens": True}})
    tokens = answer["choices"][0]["foretoken"]["tokens"]
    expected = [f"{token['text']!r} {token['drafter']}" for token in tokens]
    assert printed.splitlines() == expected, (printed, expected)
    # Drafts were accepted, so that there is something to tell apart.
    assert {token["drafter"] for token in tokens} == {"target", "prompt_lookup"}


CHECKS = {"openai": check_openai, "grpc": check_grpc}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for package in CHECKS:
        example(package)  # also where nothing can be run
    missing = [package for package in (*CHECKS, "grpc_tools") if lacks(package)]
    runnable = {package: check for package, check in CHECKS.items()
                if package not in missing and
                (package != "grpc" or "grpc_tools" not in missing)}
    if runnable:
        with serving(pathlib.Path(sys.argv[1]).resolve()) as addresses:
            for package, check in runnable.items():
                check(*addresses)
                print(f"README's example of {package} works")
    if missing:
        print(f"skipped: {SDK_PYTHON} has no {', '.join(missing)}; "
              "tools/deps --sdk")
        sys.exit(77)


if __name__ == "__main__":
    main()
