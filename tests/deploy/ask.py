"""Asks an HTTP server of this machine, for the scripts of this folder: without curl,
without a proxy of the environment, and without a token among its arguments.

    ask.py URL [--token-file FILE] [--body JSON]

Prints the answer's body; exits 1 if there is none, or its status is not 2xx. With a
body, the request is a POST.
"""

import argparse
import pathlib
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 60
MAX_ANSWER_BYTES = 64 << 20


def main():
    """Asks once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--token-file", type=pathlib.Path)
    parser.add_argument("--body")
    options = parser.parse_args()
    headers = {"Content-Type": "application/json"} if options.body else {}
    if options.token_file:
        token = options.token_file.read_text(encoding="utf-8").strip()
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(
        options.url, options.body and options.body.encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            sys.stdout.buffer.write(answer.read(MAX_ANSWER_BYTES))
    except (OSError, urllib.error.HTTPError) as error:
        sys.exit(f"{options.url}: {error}")


if __name__ == "__main__":
    main()
