"""Clocks that one iteration of a loop occupies every pipe of a multiprocessor: a lower bound for every order of
instructions.
"""
import collections
import math

import chips

_OF_WARP = {"ldsm": None, "ldgsts": None, "lds": None, "sts": None, "shfl": 32 * 4, "ldg": None, "stg": None}


def shared_clocks(instruction):
    """Clocks of the multiprocessor's one path to shared memory and first-level cache, without conflicts; 0 for
    instructions that do not use it.
    """
    if instruction.kind not in _OF_WARP:
        return 0
    return math.ceil((_OF_WARP[instruction.kind] or 32 * instruction.bytes) / chips.SHARED_BYTES)


def pipe_clocks(instruction, chip):
    """Pipe of a partition and clocks that the instruction occupies it; None for instructions that only need an issue slot."""
    if instruction.kind == "hmma":
        small = "1688" in instruction.operation
        return "tensor", chip.hmma / 2 if small else chip.hmma
    clocks = {"f32": ("f32", chip.f32), "imad": ("f32" if chip.f32 >= chip.imad else "imad", chip.imad), "alu": ("alu", chip.alu), "mufu": ("mufu", chip.mufu), "convert": ("mufu" if chip.convert >= chip.mufu else "alu", chip.convert)}
    return clocks.get(instruction.kind)


def bounds(body, chip, warps):
    """{pipe: clocks} of one iteration of all `warps` resident on a multiprocessor, spread evenly over its partitions."""
    each = warps / chips.PARTITIONS
    total = collections.Counter(issue=len(body) * each, shared=sum(map(shared_clocks, body)) * warps)
    for instruction in body:
        pipe = pipe_clocks(instruction, chip)
        if pipe:
            total[pipe[0]] += pipe[1] * each
    return dict(total)
