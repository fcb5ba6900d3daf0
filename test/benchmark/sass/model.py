#!/usr/bin/env python3
"""Estimates kernels on a GPU from their machine code alone: registers, spills, shared memory, occupancy, and the
limiting resource of the main loop.

    model.py FILE.ptx|FILE.cubin --arch sm_80 [--kernel PREFIX] [--threads N] [--shared BYTES] [--json]

For kernels with products on tensor cores: the fraction of the dense peak that the loop reaches, as a bound by the
busiest pipe and as a simulation with waits for operands (schedule.py). It is a model: nothing of it was measured, and
prologues, tails, memory and caches are left out. Needs ptxas (tools/ptxas.sh) for PTX, and nvdisasm and cuobjdump
(tools/nvdisasm.sh).

--threads: per block, if the PTX does not specify it (.reqntid, .maxntid). --shared: bytes that a launch requests in
addition to the static ones.
"""
import argparse
import dataclasses
import json
import re
import sys

import chips
import listing
import loops
import throughput
import schedule
import toolchain


@dataclasses.dataclass
class Result:
    kernel: str
    arch: str
    threads: int
    registers: int
    shared: int  # bytes per block
    spilled: int  # bytes; for a cubin, its stack
    occupancy: float = 0.0
    blocks: int = 0
    limit: str = ""
    loop: int = 0  # instructions of the main loop that most iterations execute; 0: no loop
    skipped: int = 0
    counts: dict = dataclasses.field(default_factory=dict)  # instructions of the loop by kind
    clocks: dict = dataclasses.field(default_factory=dict)  # clocks per iteration of all warps of a multiprocessor, by pipe
    simulated: float = 0.0  # simulated clocks of the same iteration
    bound: float = 0.0  # fraction of the dense peak, limited by the busiest pipe; 0: no products
    share: float = 0.0  # with waits; fraction of the peak of mma.sync
    of_vendor: float = 0.0  # fraction of the vendor's dense figure

    @property
    def binds(self):
        return max(self.clocks, key=self.clocks.get) if self.clocks else ""


def examine(kernel, arch, threads, registers, shared, spilled):
    """The model of one parsed kernel."""
    chip = chips.CHIPS[arch]
    fits = chips.occupancy(chip, threads, registers, shared)
    result = Result(kernel.name, arch, threads, registers, shared, spilled, fits.share, fits.blocks, fits.limit)
    loop = loops.main_loop(kernel)
    if not loop or not fits.blocks:
        return result
    result.loop, result.skipped = len(loop.body), loop.skipped
    for instruction in loop.body:
        result.counts[instruction.kind] = result.counts.get(instruction.kind, 0) + 1
    result.clocks = throughput.bounds(loop.body, chip, fits.blocks * fits.warps)
    result.simulated = schedule.clocks_of_iteration(loop.body, chip, fits.blocks, fits.warps)
    tensor = result.clocks.get("tensor", 0)
    if tensor and result.simulated:
        result.bound, result.share = tensor / max(result.clocks.values()), min(1.0, tensor / result.simulated)
        result.of_vendor = result.share * chip.mma_share
    return result


def threads_of(ptx):
    """{kernel: threads per block} as far as the PTX specifies it."""
    found = re.findall(r"\.entry\s+(\w+)\s*\(.*?\)\s*((?:\.\w+[^\n{]*\n)*)", ptx, re.S)
    said = {}
    for name, directives in found:
        sizes = re.search(r"\.(?:reqntid|maxntid)\s+([\d, ]+)", directives)
        if sizes:
            said[name] = 1
            for size in sizes.group(1).split(","):
                said[name] *= int(size)
    return said


def model_file(path, arch, prefix="", threads=None, shared=0):
    """Results of all kernels of a file with names that begin with `prefix`."""
    folder, cubin, spills = toolchain.cubin_of(path, arch)
    try:
        used, kernels = toolchain.resources(cubin), listing.parse(toolchain.listing(cubin))
    finally:
        if folder:
            folder.cleanup()
    said = {}
    if path.endswith(".ptx"):
        with open(path) as f:
            said = threads_of(f.read())
    results = []
    for name in sorted(used):
        if not name.startswith(prefix) or name not in kernels:
            continue
        of_block = threads or said.get(name)
        if not of_block:
            raise ValueError(f"{path}: kernel {name}: expected the threads of a block in the PTX (.reqntid or .maxntid), found none; say --threads")
        registers, static, stack = used[name]
        results.append(examine(kernels[name], arch, of_block, registers, static + shared, spills.get(name, stack)))
    return results


def show(r):
    print(f"{r.kernel} {r.arch} ({chips.CHIPS[r.arch].name}): {r.registers} registers, {r.spilled} bytes spilled, {r.shared} bytes shared; {r.blocks} blocks of {r.threads} threads, "
          f"occupancy {100 * r.occupancy:.0f} % ({r.limit})")
    if r.blocks == 0:
        print(f"  no block fits a multiprocessor: {r.limit}")
    elif not r.loop:
        print("  no loop")
    else:
        print(f"  loop of {r.loop} instructions" + (f", {r.skipped} of masks left out" if r.skipped else "") + ": " + ", ".join(f"{k} {n}" for k, n in sorted(r.counts.items(), key=lambda x: -x[1])))
        print("  clocks of a multiprocessor: " + ", ".join(f"{k} {c:.0f}" for k, c in sorted(r.clocks.items(), key=lambda x: -x[1])) + f"; simulated {r.simulated:.0f}")
        if r.share:
            vendor = f" ({r.of_vendor:.2f} of the vendor's figure)" if r.of_vendor < r.share else ""
            print(f"  share of the dense peak: at most {r.bound:.2f} ({r.binds} binds), simulated {r.share:.2f}{vendor}")
        else:
            print(f"  {r.binds} binds")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--arch", required=True, choices=sorted(chips.CHIPS))
    parser.add_argument("--kernel", default="", help="only kernels with this name prefix")
    parser.add_argument("--threads", type=int, help="threads per block")
    parser.add_argument("--shared", type=int, default=0, help="dynamic bytes per block")
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    try:
        results = model_file(o.file, o.arch, o.kernel, o.threads, o.shared)
    except (toolchain.Missing, RuntimeError, ValueError, OSError) as problem:
        sys.exit(f"error: {problem}")
    if not results:
        sys.exit(f"error: {o.file}: expected kernels with the name prefix '{o.kernel}', found none")
    if o.json:
        print(json.dumps([dataclasses.asdict(r) | {"binds": r.binds} for r in results], indent=1))
    else:
        for r in results:
            show(r)


if __name__ == "__main__":
    main()
