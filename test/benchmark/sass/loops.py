"""Loops of a kernel: backward branches, the main loop, and the code that most of its iterations execute."""
import dataclasses


@dataclasses.dataclass
class Loop:
    begin: int  # indices of instructions, half-open
    end: int
    body: list  # executed by most iterations
    skipped: int  # instructions for masks that most iterations skip


def _is_mask(region):
    """Code that most tiles skip: no product, no copy, no barrier, and at least a third of it compares or selects."""
    if not region or any(i.kind in ("hmma", "ldsm", "ldgsts", "wait") for i in region):
        return False
    choosing = sum(i.operation.startswith(("FSEL", "SEL", "ISETP", "FSETP")) for i in region)
    return choosing >= 8 and 3 * choosing >= len(region)


def find_loops(kernel):
    """Innermost loops in the order of the code."""
    code = kernel.instructions
    spans = sorted({(kernel.labels[i.target], at + 1) for at, i in enumerate(code) if i.target in kernel.labels and kernel.labels[i.target] <= at})
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    # Endless loops at the end of the code branch to themselves.
    return [_loop(kernel, *span) for span in inner if span[1] - span[0] > 1]


def _loop(kernel, begin, end):
    code, skip = kernel.instructions, set()
    for at in range(begin, end):
        target = kernel.labels.get(code[at].target, -1)
        if at < target <= end and code[at].guarded and _is_mask(code[at + 1:target]):
            skip.update(range(at + 1, target))
    body = [code[at] for at in range(begin, end) if at not in skip and not code[at].is_filler]
    return Loop(begin, end, body, len(skip))


def main_loop(kernel):
    """The innermost loop with the most products; without products the one that moves the most bytes; None without loops."""
    def weight(loop):
        products = sum(i.kind == "hmma" for i in loop.body)
        moved = sum(i.bytes for i in loop.body if i.kind in ("ldg", "stg", "lds", "sts", "ldgsts"))
        return products, moved, loop.end - loop.begin

    return max(find_loops(kernel), key=weight, default=None)
