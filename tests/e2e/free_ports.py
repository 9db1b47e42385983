#!/usr/bin/env python3
"""free_ports.py COUNT: prints the first of COUNT ports in a row that are free.

For programs that cannot be told to choose a port themselves. They lie below
those that the system gives to connections, and every call begins elsewhere, so
that nothing else that runs meanwhile is likely to take one.
"""

import random
import socket
import sys

FIRST, LAST = 10000, 32767


def is_free(port):
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        # As servers do: what is left of closed connections is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def in_a_row(count):
    """COUNT free ports; tries places until one has room."""
    for _ in range(1000):
        first = random.randint(FIRST, LAST - count + 1)
        if all(is_free(first + i) for i in range(count)):
            return range(first, first + count)
    sys.exit(f"no {count} ports in a row are free")


if __name__ == "__main__":
    if (len(sys.argv) != 2 or not sys.argv[1].isdecimal() or
            not 1 <= int(sys.argv[1]) <= LAST - FIRST + 1):
        sys.exit("usage: free_ports.py COUNT")
    print(in_a_row(int(sys.argv[1]))[0])
