"""What a measured number is kept with: the commit of the binary that made it
and the machine, with the load that the machine had.
"""
import functools
import os
import pathlib
import platform
import re
import subprocess


# Instruction sets for which the CPU engine has kernels, best first. Keys: flags
# in /proc/cpuinfo.
INSTRUCTION_SETS = {"avx512_bf16": "AVX-512 BF16", "avx512_vnni": "AVX-512 VNNI",
                    "avx512f": "AVX-512", "avx_vnni": "AVX-VNNI",
                    "avx2": "AVX2"}


def cpu_name(path="/proc/cpuinfo"):
    """The model's name, which clouds shorten, with its instruction set."""
    found = {}
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                found.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    flags = found.get("flags", "").split()
    best = [name for flag, name in INSTRUCTION_SETS.items() if flag in flags]
    name = (found.get("model name") or platform.processor() or
            platform.machine())
    return f"{name} with {best[0]}" if best else name


def lab_of(foretoken):
    """The laboratory's command line, which is built beside `foretoken`."""
    return str(pathlib.Path(foretoken).with_name("foretoken-lab"))


@functools.cache
def commit_of(binary):
    """The commit that `binary --version` names, or "unknown"."""
    done = subprocess.run([str(binary), "--version"], capture_output=True,
                          text=True, check=False)
    found = re.search(r"commit ([0-9a-f]+[^,;)]*)", done.stdout)
    return found.group(1).strip() if found else "unknown"


def made_by(binary):
    return {"commit": commit_of(binary),
            "machine": f"{cpu_name()}, {os.cpu_count()} processors, "
                       f"{platform.system()} {platform.machine()}",
            "load": round(os.getloadavg()[0], 1)}
