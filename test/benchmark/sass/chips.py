"""Throughput of a streaming multiprocessor of each architecture per clock, for models of kernels that have not run.

Sources: (G) CUDA C++ Programming Guide, tables of compute capabilities and of arithmetic throughput; (D) the vendor's
dense figure of a product, divided by multiprocessors and clock; (M) published microbenchmarks (Sun et al., "Dissecting
Tensor Cores via Microbenchmarks", arXiv 2206.02874; Jia et al., arXiv 1804.06826 and 1903.07486; Luo et al., arXiv
2402.13499); (A) assumed. None was measured by this project.
"""
import dataclasses

PARTITIONS = 4  # per multiprocessor; each issues one instruction of one warp per clock (G)
SHARED_BYTES = 128  # that shared memory and the first-level cache move per clock, for the whole multiprocessor (G)
REGISTERS, REGISTER_UNIT = 65536, 256


@dataclasses.dataclass(frozen=True)
class Chip:
    name: str  # the card with these figures
    warps: int  # per multiprocessor (G)
    blocks: int  # per multiprocessor (G)
    shared: int  # bytes of shared memory per multiprocessor (G)
    block_shared: int  # maximum bytes per block (G)
    hmma: float  # clocks that an m16n8k16 product with f32 sums occupies the tensor cores of a partition (D)
    mma_share: float  # maximum fraction of the vendor's dense figure that mma.sync reaches
    f32: float  # clocks that a warp's instruction occupies the pipe: f32 multiply and add (G)
    imad: float  # integer multiply and add (G)
    alu: float  # integer, logic, compare, select, minimum, packing (G)
    mufu: float  # exp2, reciprocal, ... (G)
    convert: float  # conversions to narrower floats, two at a time: a separate row in (G), 16 per clock and multiprocessor before sm_90, 64 there
    hmma_latency: int  # clocks until the sums can be read (M)


_KIB = 1024
CHIPS = {
    "sm_75": Chip("T4", 32, 16, 64 * _KIB, 64 * _KIB, 16, 1, 2, 2, 2, 8, 8, 33),
    "sm_80": Chip("A100", 64, 32, 164 * _KIB, 163 * _KIB, 8, 1, 2, 2, 2, 8, 8, 33),
    # Workstation cards. The RTX 3090 has half of this rate with f32 sums, so it reaches a higher fraction of its
    # figure.
    "sm_86": Chip("A40", 48, 16, 100 * _KIB, 99 * _KIB, 16, 1, 1, 2, 2, 8, 8, 33),
    "sm_89": Chip("RTX 4090", 48, 24, 100 * _KIB, 99 * _KIB, 32, 1, 1, 2, 2, 8, 8, 48),
    # 4 clocks with wgmma; mma.sync has reached 0.62 of it (M).
    "sm_90": Chip("H100", 64, 32, 228 * _KIB, 227 * _KIB, 4 / 0.62, 0.62, 1, 2, 2, 8, 2, 33),
    # Assumes the mma.sync rates of sm_90 (A). tcgen05 reaches 8192 FLOP per clock (D).
    "sm_100": Chip("B200", 64, 32, 228 * _KIB, 227 * _KIB, 4 / 0.62, 0.31, 1, 2, 2, 8, 2, 33),
    "sm_120": Chip("RTX 5090", 48, 24, 100 * _KIB, 99 * _KIB, 32, 1, 1, 2, 2, 8, 8, 48),
}

# Clocks until a result can be read (M), unless given above.
LATENCY = {"ldsm": 33, "lds": 29, "shfl": 24, "mufu": 22, "convert": 10, "f32": 4, "imad": 5, "alu": 5, "other": 6, "ldg": 400}
BARRIER = 20  # clocks from the last warp's arrival until warps continue (A)
QUEUE = 24  # clocks of work that shared memory accepts before it stalls warps (A)


@dataclasses.dataclass(frozen=True)
class Occupancy:
    blocks: int  # resident blocks per multiprocessor
    warps: int  # per block
    share: float  # fraction of the maximum number of resident warps
    limit: str  # "registers", "shared memory", "threads" or "blocks"


def occupancy(chip, threads, registers, shared):
    """Number of blocks resident on a multiprocessor. `registers` per thread, `shared` bytes per block including dynamic ones."""
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
