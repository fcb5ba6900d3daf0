"""What share of a kernel's instructions computes with integers, as a warp executes them.

Integer: additions, products, shifts, logic, comparisons, selections and permutations of integer registers, on the pipes of a thread or of the warp (U...), whether they find addresses, count
loops or widen bf16, which is a shift. Not integer: moves and reads of constants and special registers, logic of predicates, memory, control, conversions by instructions of their own (F2FP) and
everything that computes with numbers.

A path is followed from the entry: branches forward are not taken, since kernels put the usual case first; but where they jump over a call, whose cases are rare, or over a branch to the exit. A loop
counts as often as `turns` says.
"""
import re

_MOVE = re.compile(r"^(U?MOV|IMAD\.MOV|UIMAD\.MOV|CS2R|R2UR|S2R|S2UR|ULDC|LDC)")
_INTEGER = re.compile(r"^U?(IADD|IMAD|ISETP|IMNMX|IABS|IDP|ISCADD|LOP|PRMT|SHF|SHL|SHR|LEA|SEL|SGXT|BMSK|BREV|FLO|POPC|VIADD|VIMNMX|VI|XMAD|I2I)")


def is_integer(operation):
    return bool(_INTEGER.match(operation)) and not _MOVE.match(operation) and not operation.startswith("FLO")


def executions(kernel, turns):
    """How often a warp executes each instruction."""
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
            if always or any(o.operation.startswith("CALL") for o in code[at + 1:target]):
                at = target
                continue
        at += 1
    return counts


def integer_share(kernel, turns=4):
    """(share, instructions that a warp executes, by the model above)"""
    total = integer = 0
    for i, count in zip(kernel.instructions, executions(kernel, turns)):
        if i.is_filler or i.operation == "NOP":
            continue
        total += count
        integer += count * is_integer(i.operation)
    return integer / max(1, total), total
