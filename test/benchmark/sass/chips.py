"""What a streaming multiprocessor of each architecture does in a clock, for models of kernels that never ran.

Sources: (G) CUDA C++ Programming Guide, tables of compute capabilities and of arithmetic throughput; (D) the vendor's dense figure of a product, divided by
multiprocessors and clock; (M) published microbenchmarks (Sun et al., "Dissecting Tensor Cores via Microbenchmarks", arXiv 2206.02874; Jia et al., arXiv
1804.06826 and 1903.07486; Luo et al., arXiv 2402.13499); (A) assumed. None was measured by this project.
"""
import dataclasses

PARTITIONS = 4  # of a multiprocessor; each issues one instruction of one warp a clock (G)
SHARED_BYTES = 128  # that shared memory and the first cache move a clock, for the whole multiprocessor (G)
REGISTERS, REGISTER_UNIT = 65536, 256


@dataclasses.dataclass(frozen=True)
class Chip:
    name: str  # of the card whose figures it has
    warps: int  # that a multiprocessor holds (G)
    blocks: int  # likewise (G)
    shared: int  # bytes of shared memory of a multiprocessor (G)
    block_shared: int  # that one block may ask for (G)
    hmma: float  # clocks that an m16n8k16 product with sums in f32 holds the tensor cores of a partition (D)
    mma_share: float  # of the vendor's dense figure, what mma.sync reaches at most
    f32: float  # clocks that an instruction of a warp holds the pipe: f32 multiply and add (G)
    imad: float  # integer multiply and add (G)
    alu: float  # integer, logic, compare, select, minimum, packing (G)
    mufu: float  # exp2, reciprocal, ... (G)
    convert: float  # narrower floats, two at a time: a row of its own in (G), 16 a clock of a multiprocessor before sm_90 and 64 there
    hmma_latency: int  # clocks until sums can be read (M)


_KIB = 1024
CHIPS = {
    "sm_75": Chip("T4", 32, 16, 64 * _KIB, 64 * _KIB, 16, 1, 2, 2, 2, 8, 8, 33),
    "sm_80": Chip("A100", 64, 32, 164 * _KIB, 163 * _KIB, 8, 1, 2, 2, 2, 8, 8, 33),
    # Workstation cards; the RTX 3090 sums in f32 at half of this, so that its share of its own figure is higher.
    "sm_86": Chip("A40", 48, 16, 100 * _KIB, 99 * _KIB, 16, 1, 1, 2, 2, 8, 8, 33),
    "sm_89": Chip("RTX 4090", 48, 24, 100 * _KIB, 99 * _KIB, 32, 1, 1, 2, 2, 8, 8, 48),
    # 4 clocks by wgmma; mma.sync has reached 0.62 of it (M).
    "sm_90": Chip("H100", 64, 32, 228 * _KIB, 227 * _KIB, 4 / 0.62, 0.62, 1, 2, 2, 8, 2, 33),
    # As sm_90, whose rates of mma.sync are taken for those here (A): 8192 FLOP a clock by tcgen05 (D).
    "sm_100": Chip("B200", 64, 32, 228 * _KIB, 227 * _KIB, 4 / 0.62, 0.31, 1, 2, 2, 8, 2, 33),
    "sm_120": Chip("RTX 5090", 48, 24, 100 * _KIB, 99 * _KIB, 32, 1, 1, 2, 2, 8, 8, 48),
}

# Clocks until a result can be read (M), where nothing above says it.
LATENCY = {"ldsm": 33, "lds": 29, "shfl": 24, "mufu": 22, "convert": 10, "f32": 4, "imad": 5, "alu": 5, "other": 6, "ldg": 400}
BARRIER = 20  # clocks from the last warp's arrival until warps go on (A)
QUEUE = 24  # clocks of work that shared memory takes on before it holds up warps (A)


@dataclasses.dataclass(frozen=True)
class Occupancy:
    blocks: int  # of a multiprocessor at a time
    warps: int  # of a block
    share: float  # of the warps that it could hold
    limit: str  # "registers", "shared memory", "threads" or "blocks"


def occupancy(chip, threads, registers, shared):
    """How many blocks a multiprocessor holds. `registers` of a thread, `shared` bytes of a block, dynamic ones included."""
    warps = max(1, -(-threads // 32))
    of_warp = -(-max(1, registers) * 32 // REGISTER_UNIT) * REGISTER_UNIT
    limits = {
        "threads": chip.warps // warps,
        "registers": REGISTERS // PARTITIONS // of_warp * PARTITIONS // warps,
        "shared memory": 0 if shared > chip.block_shared else chip.shared // (-(-(shared + _KIB) // 128) * 128),
        "blocks": chip.blocks,
    }
    limit = min(limits, key=limits.get)
    return Occupancy(limits[limit], warps, limits[limit] * warps / chip.warps, limit)
