"""Faults of the real services, for tests/deploy/live.

    live_faults.py pauses PID         stops and continues a process, again and again
    live_faults.py can_hold           whether `hangs` is allowed here
    live_faults.py hangs PID PAGE     holds the thread of an engine within its pass
    live_faults.py damage MODEL COPY  copies a model with tied embeddings, with NaN
                                      for every token read but the first

`pauses` and `hangs` go on until they are killed; the process then goes on.
"""

import ctypes
import itertools
import json
import os
import pathlib
import shutil
import signal
import struct
import sys
import time
import urllib.request


def pause_again_and_again(pid):
    """Half of every second."""
    pid = int(pid)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        for on in itertools.cycle((signal.SIGSTOP, signal.SIGCONT)):
            os.kill(pid, on)
            time.sleep(0.5)
    finally:
        os.kill(pid, signal.SIGCONT)


def thread_times(pid):
    """{thread: (its state, processor time in clock ticks)}"""
    threads = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        threads[int(task.name)] = fields[0], int(fields[11]) + int(fields[12])
    return threads


def engine_thread(pid, others):
    """The thread that computes most, at a moment when it computes; but none of
    `others`."""
    while True:
        before = thread_times(pid)
        time.sleep(0.2)
        after = thread_times(pid)
        used = {thread: time_ - before.get(thread, ("", 0))[1]
                for thread, (_, time_) in after.items() if thread not in others}
        busiest = max(used, key=used.get)
        if used[busiest] > 0 and after[busiest][0] == "R":
            return busiest


def can_hold():
    """Whether this process may stop threads of others."""
    scope = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
    limited = scope.exists() and scope.read_text().strip() != "0"
    return 1 if limited and os.geteuid() != 0 else 0


def hold_engine(pid, page):
    """Stops one thread in the middle of a pass. If the engine is not seen to hang,
    because it was another thread or between two passes, it is let go and another one
    stopped; else it stays."""
    PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WALL = 0x4206, 0x4207, 17, 1 << 30
    libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(request, thread):
        if libc.ptrace(ctypes.c_long(request), ctypes.c_long(thread), None,
                       None) != 0:
            sys.exit(f"ptrace: {os.strerror(ctypes.get_errno())}")

    # Not through a proxy of the environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def hangs():
        with opener.open(page, timeout=10) as answer:
            return b"foretoken_engine_hangs 1" in answer.read()

    others = set()
    while True:
        if len(others) == 3:
            others.clear()
        thread = engine_thread(pid, others)
        others.add(thread)
        ptrace(PTRACE_SEIZE, thread)
        ptrace(PTRACE_INTERRUPT, thread)
        os.waitpid(thread, WALL)
        end = time.monotonic() + 8
        while time.monotonic() < end:
            if hangs():
                signal.pause()
            time.sleep(0.1)
        ptrace(PTRACE_DETACH, thread)


def damage_model(model, copy):
    """The copy's logits are finite after token 0, or its verifier would not
    serve at all."""
    shutil.copytree(model, copy)
    config = pathlib.Path(copy) / "config.json"
    options = json.loads(config.read_text())
    options["tie_word_embeddings"] = False
    config.write_text(json.dumps(options))
    path = pathlib.Path(copy) / "model.safetensors"
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    tensors = bytearray(data[8 + size:])
    read = header["model.embed_tokens.weight"]
    begin, end = read["data_offsets"]
    header["lm_head.weight"] = dict(
        read, data_offsets=[len(tensors), len(tensors) + end - begin])
    tensors += tensors[begin:end]
    begin += (end - begin) // read["shape"][0]
    # 0x7fc0 is NaN as bf16; two of them are NaN as fp32.
    tensors[begin:end] = b"\xc0\x7f" * ((end - begin) // 2)
    header = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + tensors)
    return 0


if __name__ == "__main__":
    sys.exit({"pauses": pause_again_and_again, "can_hold": can_hold,
              "hangs": hold_engine,
              "damage": damage_model}[sys.argv[1]](*sys.argv[2:]))
