"""SASS as printed by nvdisasm: kernels, their instructions, the registers these read and write, and the pipes they
need.
"""
import dataclasses
import re

_FUNCTION = re.compile(r"\.section\s+\.text\.(\S+?),|^\s*\.text\.(\S+):")
_LABEL = re.compile(r"^\s*(\.L_x?_?\w+):")
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,6})\*/\s+(.*?)\s*;")
_GUARD = re.compile(r"^@(!?)(U?P\w+)\s+")
_BRANCH = re.compile(r"\bBRA\b.*?`?\(?(\.L_x?_?\w+)\)?")

# By prefix of the operation; the longest prefix counts. F2FP packs two floats, FMNMX is a minimum. The names are
# nvdisasm's.
_CLASSES = [
    ("hmma", ("HMMA", "IMMA")),
    ("ldsm", ("LDSM",)),
    ("ldgsts", ("LDGSTS",)),
    ("wait", ("LDGDEPBAR", "DEPBAR", "BAR", "WARPSYNC", "NOP", "BSSY", "BSYNC", "MEMBAR", "ERRBAR", "CCTL", "YIELD")),
    ("lds", ("LDS",)),
    ("sts", ("STS",)),
    ("shfl", ("SHFL",)),
    ("local", ("LDL", "STL")),
    ("ldg", ("LDG", "LD.", "ATOM")),
    ("stg", ("STG", "ST.", "RED")),
    ("mufu", ("MUFU", "F2I", "I2F", "F2F", "FRND")),
    ("convert", ("F2FP",)),
    ("f32", ("FFMA", "FMUL", "FADD", "HFMA2", "HMUL2", "HADD2", "FSWZADD")),
    ("imad", ("IMAD", "UIMAD")),
    ("branch", ("BRA", "EXIT", "RET", "CALL", "BRX", "JMP")),
    ("alu", ("LOP", "PLOP", "IADD", "ISETP", "FSETP", "SEL", "FSEL", "SHF", "PRMT", "LEA", "VIADD", "VIMNMX", "MOV", "IABS", "FSET", "FMNMX", "IMNMX", "LOP3", "HSETP2", "HMNMX2", "BREV",
             "FLO", "POPC", "VOTE", "R2P", "P2R", "SGXT", "BMSK", "CS2R", "FCHK")),
]


def classify(operation):
    """The pipe class of an operation such as "HMMA.16816.F32.BF16"; "uniform" for the scalar unit, "other" for rare
    operations.
    """
    matching = [(len(prefix), name) for name, prefixes in _CLASSES for prefix in prefixes if operation.startswith(prefix)]
    if matching:
        return max(matching)[1]
    return "uniform" if operation.startswith("U") else "other"


def _registers(text, count=1):
    """For count 4: R4 and the three registers after it; none for RZ, constants and immediates."""
    found = re.match(r"^[-|~!]*R(\d+)\b", text.strip())
    return [int(found.group(1)) + i for i in range(count)] if found else []


def _width(operation):
    return 4 if ".128" in operation else 2 if ".64" in operation or ".WIDE" in operation or operation.startswith("CS2R") and ".32" not in operation else 1


def _named(words):
    """Registers and predicates that words name. Scalar registers (UR) are computed elsewhere and assumed to be ready."""
    return [int(r) for w in words for r in re.findall(r"\bR(\d+)\b", w)] + [p for w in words for p in re.findall(r"\b(U?P[0-6])\b", w)]


@dataclasses.dataclass
class Instruction:
    text: str
    operation: str
    kind: str  # see classify
    writes: list
    reads: list
    target: str = ""  # label of a branch
    guarded: bool = False

    @property
    def bytes(self):
        """Bytes that one thread moves: loads, stores and asynchronous copies."""
        if ".128" in self.operation or self.kind == "ldsm" and self.operation.endswith(".4"):
            return 16
        return 8 if ".64" in self.operation or self.kind == "ldsm" and self.operation.endswith(".2") else 2 if re.search(r"\.[US]16\b", self.operation) else 4

    @property
    def is_filler(self):
        """The assembler pads waits with loads that are never executed."""
        return self.text.startswith("@!PT ")


def parse_instruction(text):
    guard = _GUARD.match(text)
    plain = _GUARD.sub("", text)
    operation, _, rest = plain.partition(" ")
    kind = classify(operation)
    arguments = [a.strip() for a in rest.split(",")] if rest else []
    writes, reads = [], [guard.group(2)] if guard and guard.group(2) not in ("PT", "UPT") else []
    branch = _BRANCH.search(plain) if kind == "branch" else None
    if kind == "hmma" and len(arguments) >= 4:
        half = 2 if "1688" in operation or "884" in operation else 4
        writes = _registers(arguments[0], 4)
        reads += _registers(arguments[1], half) + _registers(arguments[2], half // 2) + _registers(arguments[3], 4)
    elif kind in ("sts", "stg", "ldgsts"):
        reads += _named(arguments)
        if arguments and kind != "ldgsts":
            reads += _registers(arguments[-1], _width(operation))
    elif kind not in ("branch", "wait") and arguments:
        count = int(operation[-1]) if kind == "ldsm" and operation[-1] in "124" else _width(operation)
        first = 0
        while first < len(arguments) - 1 and re.fullmatch(r"!?U?P(\d|T)", arguments[first]):  # predicates are first, one or two
            writes += re.findall(r"U?P[0-6]", arguments[first])
            first += 1
        if re.search(r"SETP|^PLOP|^VOTE|^R2P", operation):
            first -= 1  # it only writes predicates
        else:
            writes += _registers(arguments[first], count)
        reads += _named(arguments[first + 1:])
        if ".WIDE" in operation and arguments:
            reads += _registers(arguments[-1], 2)[1:]
    else:
        reads += _named(arguments) if kind != "branch" else []
    return Instruction(text, operation, kind, writes, reads, branch.group(1) if branch else "", bool(guard))


@dataclasses.dataclass
class Kernel:
    name: str
    instructions: list
    labels: dict  # index of the instruction after a label


def parse(text):
    """Every kernel of a listing (nvdisasm -c), by name."""
    kernels, current = {}, None
    for line in text.splitlines():
        found = _FUNCTION.search(line)
        if found:
            name = found.group(1) or found.group(2)
            current = kernels.setdefault(name, Kernel(name, [], {}))
            continue
        if current is None:
            continue
        label = _LABEL.match(line)
        if label:
            current.labels[label.group(1)] = len(current.instructions)
            continue
        instruction = _INSTRUCTION.match(line)
        if instruction:
            current.instructions.append(parse_instruction(re.sub(r"\s+", " ", instruction.group(2))))
    return kernels
