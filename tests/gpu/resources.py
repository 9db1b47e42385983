#!/usr/bin/env python3
"""Registers, stack and shared memory of every kernel of the GPU module, read
from the machine code in it; needs neither a GPU nor CUDA's tools.

    tests/gpu/resources.py MODULE            the table
    tests/gpu/resources.py --check MODULE    fails if a kernel has a stack
                                             (spilled registers lie there), or
                                             needs more than a GPU has, or if
                                             README's table is of other code
    tests/gpu/resources.py --write MODULE    puts the table into README

Formats: "ELF for CUDA" as binutils and cuobjdump read it. A fat binary begins
with 0xBA55ED50 and holds entries of PTX (1) and machine code (2).
"""
import argparse
import pathlib
import re
import struct
import subprocess
import sys

README = pathlib.Path(__file__).parents[2] / "common/infer/cuda/README.md"
BEGIN = "<!-- tests/gpu/resources.py --write MODULE: begin -->"
END = "<!-- tests/gpu/resources.py --write MODULE: end -->"

FATBIN = struct.pack("<I", 0xBA55ED50)
KIND_ELF = 2
FLAG_COMPRESSED = 0x2000 | 0x8000
# A kernel with no more registers has no body: it is left out for that GPU.
EMPTY_REGISTERS = 8
# Attributes of .nv.info.
ATTR_MAX_THREADS, ATTR_FRAME_SIZE, ATTR_REGISTERS = 0x05, 0x11, 0x2F
VALUE_OF_ANY_SIZE = 4

# Of a multiprocessor: shared memory, and threads; of a thread block: shared
# memory (CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability"). All have 65,536 registers, given out by 256 to a warp, and keep
# 1 KiB of shared memory for each thread block.
RESERVED_SHARED = 1024
LIMITS = {80: (164, 2048, 163), 86: (100, 1536, 99), 89: (100, 1536, 99),
          90: (228, 2048, 227)}


# Stacks that are allowed, in bytes, by the beginning of a kernel's name in the
# table.
KNOWN_STACKS = {
    "SampleKernel": 96,         # arrays indexed at run time; ptxas: no spill
    "attention, head 256": 24,  # 255 registers; none of the named shapes
}


class Kernel:
    def __init__(self, name, registers, frame, threads, static_shared):
        self.name, self.registers, self.frame = name, registers, frame
        self.threads, self.static_shared = threads, static_shared


def cubins(module):
    """(compute capability, ELF image) of each piece of machine code."""
    at = module.find(FATBIN)
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", module, at)
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, header, size = struct.unpack_from("<HHIQ", module, entry)
            capability, = struct.unpack_from("<I", module, entry + 28)
            flags, = struct.unpack_from("<Q", module, entry + 40)
            if kind == KIND_ELF:
                if flags & FLAG_COMPRESSED:
                    raise ValueError("compressed machine code: build without "
                                     "--compress-all")
                image = entry + header
                yield capability, module[image:image + size]
            entry += header + size
        at = module.find(FATBIN, end)


def text(table, at):
    return table[at:table.index(b"\0", at)].decode()


class Elf:
    def __init__(self, data):
        self.data = data
        offset, = struct.unpack_from("<Q", data, 0x28)
        size, count, names = struct.unpack_from("<HHH", data, 0x3A)
        self.raw = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size)
                    for i in range(count)]
        names = self.content(self.raw[names])
        self.sections = {text(names, s[0]): s for s in self.raw}

    def content(self, section):
        return self.data[section[4]:section[4] + section[5]]

    def symbols(self):
        table = self.content(self.sections[".symtab"])
        strings = self.content(self.sections[".strtab"])
        return [text(strings, struct.unpack_from("<I", table, i)[0])
                for i in range(0, len(table), 24)]


def attributes(info):
    at = 0
    while at + 4 <= len(info):
        form, name, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == VALUE_OF_ANY_SIZE:
            yield name, info[at:at + size]
            at += size


def kernels_of(capability, image):
    elf = Elf(image)
    symbols = elf.symbols()
    registers, frames = {}, {}
    for name, value in attributes(elf.content(elf.sections[".nv.info"])):
        of = {ATTR_REGISTERS: registers, ATTR_FRAME_SIZE: frames}.get(name)
        if of is not None:
            symbol, number = struct.unpack("<II", value)
            of[symbols[symbol]] = number
    for section in elf.sections:
        if not section.startswith(".text."):
            continue
        symbol = section[len(".text."):]
        threads = 0
        for name, value in attributes(
                elf.content(elf.sections[".nv.info." + symbol])):
            if name == ATTR_MAX_THREADS:
                threads = struct.unpack_from("<I", value)[0]
        shared = elf.sections.get(".nv.shared." + symbol)
        own = 0 if shared is None else shared[5]
        # From 9.0 on what each thread block loses is counted in.
        if capability >= 90:
            own = max(0, own - RESERVED_SHARED)
        yield Kernel(symbol, registers[symbol], frames[symbol], threads, own)


def toolkit(image):
    found = re.search(rb"Cuda compilation tools, release [0-9.]+, V([0-9.]+)",
                      image)
    return found.group(1).decode() if found else "unknown"


def demangled(names):
    done = subprocess.run(["c++filt"], input="\n".join(names), text=True,
                          check=True, capture_output=True).stdout
    return dict(zip(names, done.splitlines()))


def numbers(template, name):
    """Of Tile<2, 1> as of Tile<Tiling{2, 1}>."""
    found = re.search(template + r"<([^<>]*)>", name)
    return [int(n) for n in re.findall(r"\d+", found.group(1))]


def described(name):
    """What a kernel is called in the table, and its dynamic shared memory."""
    kernel = re.search(r"(\w+)(?:<|\()", name.replace(
        "(anonymous namespace)::", "")).group(1)
    if kernel == "GemmKernel":
        # gemm.cu, Tile: a stage has 128 features and the tile's rows, 2 bytes
        # of each k.
        feature_tiles, row_tiles, row_warps, k, stages = numbers("Tile", name)
        rows = 8 * row_tiles * row_warps
        return (f"product, tiles of {rows} rows, {stages} stages of {k} k",
                stages * (128 + rows) * k * 2)
    if kernel == "WideGemmKernel":
        # gemm_index.h, WideGemmTiling: a stage has 64 k of its features and
        # rows, and two barriers. Registers are those at the start: from there
        # on the warpgroups that multiply have more, the other has fewer.
        blocks, rows, stages = numbers("WideTile", name)[:3]
        whole = ", all groups" if "true" in name else ""
        return (f"product by warpgroups, {128 * blocks} features, "
                f"{rows} rows{whole}",
                stages * ((128 * blocks + rows) * 64 * 2 + 16))
    if kernel in ("AttentionKernel", "MergeKernel"):
        # attention_warp.cuh, Head: stages of K and V of 32 keys, and each warp's
        # queries. Rows are whole multiples of 64 dimensions.
        if kernel == "MergeKernel":
            return f"merge of chunks, head {re.findall(r'[0-9]+', name)[-1]}", 0
        dim, *tiling = numbers("Head", name)
        warps, stages = tiling or (4 if dim <= 128 else 2, 2)
        block = 32 * ((dim + 63) // 64 * 64) * 2
        queries = (dim // 32) * 2 * 32 * 16
        return (f"attention, head {dim}, {warps} warps, {stages} stages",
                stages * 2 * block + warps * queries)
    if kernel == "NormKernel":
        return f"norm, {numbers('NormKernel', name)[-1]} places ahead", 0
    return kernel, 0


def blocks_on(capability, kernel, dynamic):
    """Thread blocks on one multiprocessor; 0: does not fit."""
    whole, threads, most = LIMITS[capability]
    shared = kernel.static_shared + dynamic
    if shared > most * 1024 or kernel.threads == 0:
        return 0
    warps = (kernel.threads + 31) // 32
    registers = warps * -(-kernel.registers * 32 // 256) * 256
    return min(whole * 1024 // (shared + RESERVED_SHARED), threads // kernel.threads,
               65536 // registers)


def read(path):
    """{capability: [Kernel]}, and the version of the compiler."""
    found, version = {}, "unknown"
    for capability, image in cubins(path.read_bytes()):
        found.setdefault(capability, []).extend(kernels_of(capability, image))
        version = toolkit(image)
    names = demangled(sorted({k.name for kernels in found.values()
                              for k in kernels}))
    for kernels in found.values():
        for kernel in kernels:
            kernel.name = names[kernel.name]
    return found, version


def rows_of(found):
    """{name: {capability: (registers, frame, shared, blocks)}}: the most of
    weight types and epilogues, whose kernels share a row."""
    rows = {}
    for capability, kernels in found.items():
        for kernel in kernels:
            name, dynamic = described(kernel.name)
            blocks = (blocks_on(capability, kernel, dynamic)
                      if capability in LIMITS else 0)
            new = (kernel.registers, kernel.frame,
                   kernel.static_shared + dynamic, blocks, kernel.threads)
            row = rows.setdefault(name, {})
            old = row.get(capability, new)
            row[capability] = (max(old[0], new[0]), max(old[1], new[1]),
                               max(old[2], new[2]), min(old[3], new[3]),
                               max(old[4], new[4]))
    return rows


def order(name):
    return [int(part) if part.isdigit() else part
            for part in re.split(r"(\d+)", name)]


def table_of(found, version):
    rows = rows_of(found)
    capabilities = sorted(found)
    count = sum(len(kernels) for kernels in found.values())
    lines = [
        f"{count} kernels in machine code by nvcc {version}; each row the most of "
        "weight types and epilogues. Registers of a thread; thread blocks on a "
        "multiprocessor. 0: the shared memory of one is more than the GPU has; "
        "-: left out for it. There another row's kernel runs.",
        "",
        "| kernel | threads | shared bytes | stack bytes | "
        + " | ".join(f"{c // 10}.{c % 10}" for c in capabilities) + " |",
        "|---|---|---|---|" + "---|" * len(capabilities)]
    for name in sorted(rows, key=order):
        row = rows[name]
        cells = []
        for capability in capabilities:
            registers, _, _, blocks, _ = row[capability]
            cells.append("-" if registers <= EMPTY_REGISTERS
                         else f"{registers}, {blocks}")
        some = next(iter(row.values()))
        lines.append(f"| {name} | {some[4]} | {some[2]} | "
                     f"{max(r[1] for r in row.values())} | "
                     + " | ".join(cells) + " |")
    return "\n".join(lines)


def problems_of(found):
    for capability, kernels in sorted(found.items()):
        for kernel in kernels:
            where = f"{kernel.name} for {capability // 10}.{capability % 10}"
            known = max((size for name, size in KNOWN_STACKS.items()
                         if described(kernel.name)[0].startswith(name)),
                        default=0)
            if kernel.frame > known:
                yield (f"{where}: {kernel.frame} bytes of stack, want {known} "
                       "(spilled registers)")
            if kernel.threads == 0:
                yield f"{where}: no __launch_bounds__"
    for name, row in rows_of(found).items():
        if all(c in LIMITS and r[3] == 0 for c, r in row.items()):
            yield f"{name}: fits on no GPU"


def readme_table():
    content = README.read_text()
    begin, end = content.index(BEGIN), content.index(END)
    return content, begin + len(BEGIN), end


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("module", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if not options.module.is_file():
        print(f"resources: {options.module} was not built (no CUDA toolkit)")
        return 77
    found, version = read(options.module)
    if not found:
        print(f"resources: no machine code in {options.module}")
        return 1
    table = table_of(found, version)
    problems = list(problems_of(found))
    if options.write:
        content, begin, end = readme_table()
        README.write_text(f"{content[:begin]}\n{table}\n{content[end:]}")
    if options.check:
        content, begin, end = readme_table()
        old = content[begin:end].strip()
        # Another compiler, or a module for other GPUs, has another table.
        header = table.splitlines()[2]
        comparable = f"nvcc {version};" in old and header in old
        if comparable and old != table:
            problems.append(f"{README} has another table: run "
                            f"tests/gpu/resources.py --write {options.module}")
        print(f"resources: README's table "
              f"{'compared' if comparable else 'is of another build'}")
    else:
        print(table)
    for problem in problems:
        print(f"resources: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
