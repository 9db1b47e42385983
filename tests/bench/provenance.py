"""What a measured number is kept with: the commit of the binary that made it
and the machine, with the load that the machine had.
"""
import functools
import os
import platform
import re
import subprocess


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


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
