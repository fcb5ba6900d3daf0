"""Computes the fraction of a kernel's instructions that are integer arithmetic, as executed by a warp.

Integer: additions, products, shifts, logic, comparisons, selections and permutations of integer registers, on the pipes
of a thread or of the warp (U...). They compute addresses, count loops or widen bf16, which is a shift. Not integer:
moves and reads of constants and special registers, logic of predicates, memory, control, conversions by separate
instructions (F2FP), and all floating-point operations.

The model follows a path from the entry. It does not take forward branches, because kernels put the usual case first,
with two exceptions: a branch that skips a call, because calls handle rare cases; and a branch that skips guarded
accesses to global memory when its target has unguarded ones, because the former are for the last block of a grid and
the latter for a whole block. A loop counts `turns` times.
"""
import re

_MOVE = re.compile(r"^(U?MOV|IMAD\.MOV|UIMAD\.MOV|CS2R|R2UR|S2R|S2UR|ULDC|LDC)")
_INTEGER = re.compile(r"^U?(IADD|IMAD|ISETP|IMNMX|IABS|IDP|ISCADD|LOP|PRMT|SHF|SHL|SHR|LEA|SEL|SGXT|BMSK|BREV|FLO|POPC|VIADD|VIMNMX|VI|XMAD|I2I)")


def is_integer(operation):
    return bool(_INTEGER.match(operation)) and not _MOVE.match(operation) and not operation.startswith("FLO")


def guards(kernel, at):
    """The number of guards that accesses to global memory have from `at` to the next exit or jump, by predicates or
    branches around them, and the number of accesses.
    """
    guarded = accesses = 0
    for i in kernel.instructions[at:]:
        if i.operation.startswith(("LDG", "STG")):
            accesses += 1
            guarded += i.guarded
        guarded += i.kind == "branch" and i.operation.startswith("BRA") and (i.guarded or bool(re.match(r"BRA\S* !?U?P", i.text)))
        if not i.guarded and (i.operation.startswith(("EXIT", "RET")) or i.kind == "branch" and not re.match(r"BRA\S* !?U?P", i.text)):
            break
    return guarded, accesses


def leadsToWhole(kernel, at, target):
    """Whether a forward branch jumps from a block's guarded accesses to those of a whole block."""
    (guarded, _), (others, all_) = guards(kernel, at + 1), guards(kernel, target)
    return guarded > 0 and others == 0 and all_ > 0


def executions(kernel, turns):
    """Number of times that a warp executes each instruction."""
    code, counts, at, closed = kernel.instructions, [0] * len(kernel.instructions), 0, set()
    while at < len(code):
        i = code[at]
        counts[at] += 1
        target = kernel.labels.get(i.target, -1) if i.kind == "branch" else -1
        always = not i.guarded and not re.match(r"BRA\S* !?U?P", i.text)
        if i.operation.startswith(("EXIT", "RET")) and always:
            break
        if i.operation.startswith("BRA") and 0 <= target <= at:
            if target == at:
                break
            if at not in closed:
                closed.add(at)
                for inside in range(target, at + 1):
                    counts[inside] *= turns
        elif i.operation.startswith("BRA") and target > at:
            if always or any(o.operation.startswith("CALL") for o in code[at + 1:target]) or leadsToWhole(kernel, at, target):
                at = target
                continue
        at += 1
    return counts


def integer_share(kernel, turns=4):
    """(fraction, instructions that a warp executes according to the model above)"""
    total = integer = 0
    for i, count in zip(kernel.instructions, executions(kernel, turns)):
        if i.is_filler or i.operation == "NOP":
            continue
        total += count
        integer += count * is_integer(i.operation)
    return integer / max(1, total), total
