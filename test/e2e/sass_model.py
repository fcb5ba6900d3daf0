"""The loop model of kernels (test/benchmark/sass) on hand-written listings: parsing, loops, pipes, occupancy, and its
clock compared with a reference that simulates every clock cycle.

Needs neither an assembler nor a GPU.
"""
import os
import random
import sys

import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "test", "benchmark", "sass"))
import chips  # noqa: E402
import listing  # noqa: E402
import loops  # noqa: E402
import model as sass  # noqa: E402
import throughput  # noqa: E402
import schedule  # noqa: E402

A100 = chips.CHIPS["sm_80"]


def check(what, found, expected):
    if found != expected:
        raise z.Failure(f"{what}: expected {expected}, found {found}")


def near(what, found, expected, within):
    if abs(found - expected) > within * expected:
        raise z.Failure(f"{what}: expected {expected:.1f} within {100 * within:.0f} %, found {found:.1f}")


def text_of(lines, name="k"):
    """A listing in nvdisasm's format; lines that end with a colon are labels."""
    out, at = [f"\t.section\t.text.{name},\"ax\",@progbits", f".text.{name}:"], 0
    for line in lines:
        if line.endswith(":"):
            out.append(line)
        else:
            out.append(f"        /*{at:04x}*/                   {line} ;")
            at += 16
    return "\n".join(out)


def body_of(lines):
    return [listing.parse_instruction(line) for line in lines]


def reading():
    for line, kind, writes, reads in (
        ("HMMA.16816.F32.BF16 R4, R8, R12, R4", "hmma", [4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 4, 5, 6, 7]),
        ("LDSM.16.MT88.4 R52, [R217+UR10+0x8000]", "ldsm", [52, 53, 54, 55], [217]),
        ("LDS.128 R16, [R3+0x10]", "lds", [16, 17, 18, 19], [3]),
        ("STS.64 [R2], R8", "sts", [], [2, 8, 8, 9]),
        ("@!P0 LDG.E.128 R20, [R2.64]", "ldg", [20, 21, 22, 23], ["P0", 2]),
        ("LDGSTS.E.BYPASS.128 [R53+0x8000], [R44.64], !P0", "ldgsts", [], [53, 44, "P0"]),
        ("ISETP.GE.U32.AND P0, PT, R48, c[0x0][0x190], PT", "alu", ["P0"], [48]),
        ("FSETP.NEU.AND P2, PT, R7, -INF, P1", "alu", ["P2"], [7, "P1"]),
        ("SHFL.BFLY PT, R5, R6, 0x1, 0x1f", "shfl", [5], [6]),
        ("IMAD.WIDE.U32 R44, R47.reuse, c[0x0][0x1c0], R44", "imad", [44, 45], [47, 44, 45]),
        ("MUFU.EX2 R9, R9", "mufu", [9], [9]),
        ("F2FP.BF16.F32.PACK_AB R4, R5, R6", "convert", [4], [5, 6]),
        ("FFMA.FTZ R1, R2, R3, -R4", "f32", [1], [2, 3, 4]),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", "wait", [], []),
        ("UIADD3 UR4, UR4, 0x1, URZ", "uniform", [], []),
    ):
        found = listing.parse_instruction(line)
        check(line, (found.kind, found.writes, found.reads), (kind, writes, reads))


def finding_loops():
    masked = [f"FSEL R{i}, R{i}, -INF, P1" for i in range(20, 32)]
    kernels = listing.parse(text_of(
        ["MOV R1, c[0x0][0x28]", ".L_x_0:", "FADD R1, R1, R2", "@P0 BRA `(.L_x_0)",
         ".L_x_1:", "HMMA.16816.F32.BF16 R4, R8, R12, R4", "@P1 BRA `(.L_x_2)", *masked, ".L_x_2:", "@!PT LDS RZ, [RZ]", "MUFU.EX2 R9, R4", "@P0 BRA `(.L_x_1)", "EXIT", ".L_x_3:",
         "BRA `(.L_x_3)"]))
    check("kernels", list(kernels), ["k"])
    check("loops", [(l.begin, l.end) for l in loops.find_loops(kernels["k"])], [(1, 3), (3, 20)])
    main = loops.main_loop(kernels["k"])
    check("body without masks and fillers", [i.kind for i in main.body], ["hmma", "branch", "mufu", "branch"])
    check("instructions of masks", main.skipped, 12)
    check("no loop", loops.main_loop(listing.parse(text_of(["EXIT"]))["k"]), None)


def counting():
    body = body_of(["HMMA.16816.F32.BF16 R4, R8, R12, R4", "FFMA R1, R2, R3, R4", "IADD3 R1, R1, R2, RZ", "MUFU.EX2 R1, R1", "LDSM.16.M88.4 R8, [R20]", "LDS R2, [R3]"])
    check("pipes of A100", throughput.bounds(body, A100, 8), {"issue": 12.0, "shared": 40, "tensor": 16.0, "f32": 4.0, "alu": 4.0, "mufu": 16.0})
    check("occupancy by registers", chips.occupancy(A100, 128, 236, 32768), chips.Occupancy(2, 4, 0.125, "registers"))
    check("occupancy by shared memory", chips.occupancy(A100, 128, 32, 98304).limit, "shared memory")
    check("occupancy by threads", chips.occupancy(A100, 256, 24, 0).share, 1.0)
    check("too much shared memory", chips.occupancy(A100, 128, 32, 200000).blocks, 0)


def every_clock(body, chip, blocks, warps, iterations=6, warm=2):
    """The same rules, cycle by cycle."""
    steps = [(i, throughput.pipe_clocks(i, chip), throughput.shared_clocks(i), schedule._latency(i, chip)) for i in body]
    all_warps = [{"block": b, "q": (b * warps + w) % 4, "at": 0, "done": 0, "time": 37 * b, "ready": {}, "bar": False} for b in range(blocks) for w in range(warps)]
    order, held, shared, clock, ends, arrived = list(all_warps), [{} for _ in range(4)], 0, 0, [0] * (iterations + 1), [0] * blocks
    while any(w["done"] < iterations for w in all_warps):
        for q in ((x - clock) % 4 for x in range(4)):
            for w in order:
                if w["q"] != q or w["bar"] or w["time"] > clock:
                    continue
                i, pipe, moved, latency = steps[w["at"]]
                if any(w["ready"].get(r, 0) > clock for r in i.reads) or (pipe and held[q].get(pipe[0], 0) > clock) or (moved and shared - chips.QUEUE > clock):
                    continue
                arrival = clock + latency
                if pipe:
                    held[q][pipe[0]] = clock + pipe[1]
                if moved:
                    shared = max(shared, clock) + moved
                    arrival = shared + latency - moved
                w["ready"].update({r: arrival for r in i.writes})
                w["time"], w["at"] = clock + 1, w["at"] + 1
                if w["at"] == len(steps):
                    w["at"], w["done"] = 0, w["done"] + 1
                    if w["done"] <= iterations:
                        ends[w["done"]] = max(ends[w["done"]], clock + 1)
                if i.operation.startswith("BAR"):
                    arrived[w["block"]] += 1
                    w["bar"] = True
                    if arrived[w["block"]] == warps:
                        arrived[w["block"]] = 0
                        for other in all_warps:
                            if other["block"] == w["block"]:
                                other["bar"], other["time"] = False, clock + chips.BARRIER
                order.remove(w)
                order.append(w)
                break
        clock += 1
    return (ends[iterations] - ends[warm]) / (iterations - warm)


def simulating():
    product = "HMMA.16816.F32.BF16 R{0}, R100, R104, R{0}"
    independent = body_of([product.format(4 * i) for i in range(16)])
    near("products that wait for nothing", schedule.clocks_of_iteration(independent, A100, 2, 4), 2 * 16 * A100.hmma, 0.02)
    chain = body_of([product.format(0)] * 4)
    near("a chain of products", schedule.clocks_of_iteration(chain, A100, 1, 4), 4 * A100.hmma_latency, 0.02)
    near("a chain, with another warp between", schedule.clocks_of_iteration(chain, A100, 2, 4), 4 * A100.hmma_latency, 0.02)
    rng, ratios = random.Random(1), []
    for case in range(8):
        lines = []
        for n in range(60):
            kind = rng.choice(["hmma", "hmma", "ldsm", "f32", "mufu", "alu", "sts"])
            r = 4 * rng.randrange(20)
            lines.append({"hmma": product.format(r), "ldsm": f"LDSM.16.M88.4 R{r}, [R200]", "f32": f"FFMA R{r}, R{r + 1}, R{r + 4}, R{r}", "mufu": f"MUFU.EX2 R{r}, R{r + 2}",
                          "alu": f"IADD3 R{r}, R{r + 3}, R1, RZ", "sts": f"STS.128 [R200], R{r}"}[kind])
        lines.insert(30, "BAR.SYNC.DEFER_BLOCKING 0x0")
        body = body_of(lines)
        found = schedule.clocks_of_iteration(body, A100, 2, 4)
        stepped = every_clock(body, A100, 2, 4)
        ratios.append(found / stepped)
        near(f"random loop {case}", found, stepped, 0.15)  # the order within one cycle may decide the order in all later ones
        if found < max(throughput.bounds(body, A100, 8).values()) * 0.98:
            raise z.Failure(f"random loop {case} takes {found:.0f} clocks, less than its busiest pipe")
    near("random loops together", sum(ratios) / len(ratios), 1, 0.04)


def whole():
    lines = [".L_x_1:"] + [f"HMMA.16816.F32.BF16 R{4 * i}, R100, R104, R{4 * i}" for i in range(16)] + ["@P0 BRA `(.L_x_1)", "EXIT"]
    kernel = listing.parse(text_of(lines))["k"]
    r = sass.examine(kernel, "sm_80", 128, 200, 1024, 0)
    if not (0.9 < r.share <= 1 and r.binds == "tensor" and r.of_vendor == r.share):
        raise z.Failure(f"a loop of products alone: expected most of the peak, found {r}")
    hopper = sass.examine(kernel, "sm_90", 128, 200, 1024, 0)
    if not hopper.of_vendor < 0.65:
        raise z.Failure(f"mma.sync on H100: expected at most 0.62 of the vendor's figure, found {hopper.of_vendor}")
    check("threads in PTX", sass.threads_of(".visible .entry a(\n.param .u64 x\n)\n.maxntid 64, 2, 1\n{\n}\n.visible .entry b()\n{\n}"), {"a": 128})


def main():
    for part in (reading, finding_loops, counting, simulating, whole):
        part()
    print("ok: listings are read, loops found, pipes counted; the clock agrees with one that steps")


if __name__ == "__main__":
    main()
