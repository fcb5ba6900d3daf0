"""Trains on emulated GPUs through the real driver: losses and first-step gradients match CPUs, also under plans with
both kinds of devices.

    cuda.py [--quick]     eight plans, and 16 random ones in f32; --quick: GPT in f32 and bf16, three plans

The CUDA device loads NVIDIA's libraries at run time; here it loads fakes (test/emulator) with an emulated GPU that runs
the bitcode that becomes PTX for real GPUs.

Limits relative to the bundle for one CPU: in f32, 1e-5 for the losses of 20 steps and 1e-5 for first-step gradients in
the norm of gradient_error; in bf16 2e-3 and in f16 2e-2, because sums in another order may round differently. TF32
differs from f32 only by the rounding of operands to 10 bits.
"""
import os
import random
import sys
import tempfile

import harness as z

STANDIN = os.path.join(os.path.dirname(z.BIN), "standin")
UNITS, BATCH, LENGTH, STEPS = 8, 8, 32, 20
# devices (g: emulated GPU, c: CPU) and cells (first unit, end unit, first sample, end sample, device)
PLANS = {
    "one GPU": (["g0"], [(0, 8, 0, 8, "g0")], {}),
    "GPU and processor, shares 5 and 3": (["g0", "c0"], [(0, 8, 0, 5, "g0"), (0, 8, 5, 8, "c0")], {}),
    "stages, processor in the middle": (["g0", "c0", "g1"], [(0, 3, 0, 5, "g0"), (0, 3, 5, 8, "g0"), (3, 5, 0, 8, "c0"), (5, 8, 0, 3, "g1"), (5, 8, 3, 8, "g1")], {}),
    "micro-batches of odd sizes": (["g0"], [(0, 8, 0, 1, "g0"), (0, 8, 1, 4, "g0"), (0, 8, 4, 8, "g0")], {}),
    "split backward": (["g0", "g1"], [(0, 4, 0, 4, "g0"), (0, 4, 4, 8, "g0"), (4, 8, 0, 4, "g1"), (4, 8, 4, 8, "g1")], {"split_backward": True}),
    "mixed stages": (["g0", "c0", "g1"], [(0, 3, 0, 5, "g0"), (0, 3, 5, 8, "c0"), (3, 8, 0, 4, "g1"), (3, 8, 4, 6, "g1"), (3, 8, 6, 8, "c0")], {}),
    "state with another GPU": (["g0", "g1"], [(0, 8, 0, 8, "g0")], {"state": {"groups": [{"group": "*", "owners": [{"device": "g1", "fraction": 0.7}, {"device": "g0", "fraction": 0.3}]}]}}),
    "two GPUs that divide all units": (["g0", "g1"], [(0, 8, 0, 4, "t"), (0, 8, 4, 8, "t")], {"groups": [{"name": "t", "devices": ["g0", "g1"]}]}),
    "GPU and processor that divide all units, next to a whole GPU": (["g0", "c0", "g1"], [(0, 8, 0, 5, "t"), (0, 8, 5, 8, "u")], {"groups": [{"name": "t", "devices": ["g0", "c0"], "shares": [2, 1]}, {"name": "u", "devices": ["g1"]}]}),
    "two devices on one GPU": (["g0", "g1"], [(0, 3, 0, 8, "g0"), (3, 8, 0, 5, "g1"), (3, 8, 5, 8, "g0")], {}),
}


def random_plan(seed, batch=None):
    """(batch, devices, cells, more)"""
    draw = random.Random(seed)
    devices = ["g0", "g1", "g2"][:draw.randint(1, 3)] + (["c0"] if seed % 2 else [])
    batch = batch or draw.choice((3, 4, 6))
    cuts = sorted(draw.sample(range(1, UNITS), draw.randint(0 if len(devices) == 1 else 1, min(3, len(devices)))))
    cells = []
    for begin, end in zip([0] + cuts, cuts + [UNITS]):
        ends = sorted(draw.sample(range(1, batch), draw.randint(0, 2)))
        for first, last in zip([0] + ends, ends + [batch]):
            cells.append((begin, end, first, last, draw.choice(devices)))
    cells[0] = cells[0][:4] + ("g0",)
    more = {"split_backward": True} if seed % 3 == 0 else {}
    if len(devices) > 1 and seed % 4 == 0:
        share = draw.randint(10, 90)
        more["state"] = {"groups": [{"group": "*", "owners": [{"device": devices[0], "fraction": share / 100}, {"device": devices[-1], "fraction": 1 - share / 100}]}]}
    return batch, devices, cells, more


def cluster(folder, devices):
    path = os.path.join(folder, "cluster-" + "-".join(devices) + ".yaml")
    with open(path, "w") as f:
        f.write("name: test\nnodes:\n  - name: here\n    devices:\n")
        for d in devices:
            kind = "kind: cuda, arch: emu" if d.startswith("g") else "kind: cpu, threads: 1"
            f.write(f"      - {{ name: {d}, {kind}, flops_per_second: 1e10, memory: 2GiB }}\n")
    return path


def train(folder, tag, model, data, precision, devices, cells, more, options={}):
    base = os.path.join(folder, tag)
    plan = z.plan(folder, tag, BATCH, devices, cells, **more)
    z.compile(model, base + ".zorse", cluster(folder, devices), BATCH, LENGTH, plan, {"optimizer": "adamw", "lr": "1e-3", "max-grad-norm": "1.0", **options}, precision)
    metrics = z.run(base + ".zorse", data, STEPS, gradients=base + ".g", extra=("--share-gpus",))
    return [m["loss"] for m in metrics], z.safetensors(base + ".g")


def main():
    if not os.path.exists(os.path.join(STANDIN, "libcuda.so.1")):
        raise z.Failure(f"{STANDIN} has no libcuda.so.1: build the target zorse_standin_cuda")
    os.environ["LD_LIBRARY_PATH"] = STANDIN + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    quick = "--quick" in sys.argv
    limits = {"f32": (1e-5, 1e-5), "bf16": (2e-3, 2e-2), "f16": (2e-3, 2e-2)}
    results = []
    for name in ("gpt",) if quick else ("gpt", "llama"):
        model, data = os.path.join(z.SMALL, name + ".onnx"), os.path.join(z.SMALL, name + ".bf16.tokens.bin")
        for precision in ("f32", "bf16") if quick else ("f32", "bf16", "f16"):
            with tempfile.TemporaryDirectory() as folder:
                loss, gradients = train(folder, "cpu", model, data, precision, ["c0"], [(0, UNITS, 0, BATCH, "c0")], {})
                plans = dict(PLANS)
                if precision == "f32" and not quick:
                    plans.update((f"random plan {seed}", random_plan(seed, BATCH)[1:]) for seed in range(16))
                for n, (plan, (devices, cells, more)) in enumerate(plans.items()):
                    if quick and n >= 3:
                        break
                    os.environ["ZORSE_EMULATOR_DEVICES"] = "1" if plan == "two devices on one GPU" else "3"
                    found, g = train(folder, f"plan{n}", model, data, precision, devices, cells, more)
                    results.append(z.check(f"{name}, {precision}, {plan}: losses", z.relative(found, loss), limits[precision][0]))
                    results.append(z.check(f"{name}, {precision}, {plan}: first gradients", z.gradient_error(g, gradients)[0], limits[precision][1]))
    results += tf32() + sums_in_f16() + block_updates()
    z.finish(results)


def tf32():
    """One GPU in TF32, and a GPU with a CPU that computes in f32, against the CPU in f32. The difference is of the
    order of a rounding of 2^-11: not zero, and not larger."""
    model, data, found = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.bf16.tokens.bin"), []
    with tempfile.TemporaryDirectory() as folder:
        loss, gradients = train(folder, "cpu", model, data, "f32", ["c0"], [(0, UNITS, 0, BATCH, "c0")], {})
        for n, plan in enumerate(("one GPU", "GPU and processor, shares 5 and 3")):
            devices, cells, more = PLANS[plan]
            losses, g = train(folder, f"tf32-{n}", model, data, "tf32", devices, cells, more)
            off = z.gradient_error(g, gradients)[0]
            found += [z.check(f"gpt, tf32, {plan}: losses", z.relative(losses, loss), 2e-3), z.check(f"gpt, tf32, {plan}: first gradients", off, 5e-3),
                      z.check(f"gpt, tf32, {plan}: operands are rounded", 0 if off > 1e-5 else 1, 0)]
        code, _, err = z.call("zorse-compile", model, "--cluster", cluster(folder, ["c0"]), "--global-batch-size", BATCH, "--seq-length", LENGTH, "--precision", "tf32", "-o", os.path.join(folder, "none.zorse"), ok=False)
        found.append(z.check("tf32 on processors alone is refused", 0 if code == 1 and "no device of the cluster has TF32 (c0)" in err else 1, 0))
    return found


def block_updates():
    """Updates of whole blocks, with workspace, matmuls (Muon) or 8-bit states, on a GPU that owns 0.7 of the parameters and on a processor."""
    model, data, found = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.bf16.tokens.bin"), []
    devices, cells, _ = PLANS["GPU and processor, shares 5 and 3"]
    more = {"state": {"groups": [{"group": "*", "owners": [{"device": "g0", "fraction": 0.7}, {"device": "c0", "fraction": 0.3}]}]}}
    with tempfile.TemporaryDirectory() as folder:
        for optimizer in ("muon", "adafactor", "adamw8bit"):
            options = {"optimizer": optimizer, "lr": "1e-2"}
            loss, _ = train(folder, f"{optimizer}-cpu", model, data, "f32", ["c0"], [(0, UNITS, 0, BATCH, "c0")], {}, options)
            losses, _ = train(folder, optimizer, model, data, "f32", devices, cells, more, options)
            found.append(z.check(f"gpt, {optimizer}: losses", z.relative(losses, loss), 1e-4))
    return found


def sums_in_f16():
    """One GPU that accumulates in f16 against the same GPU with f32 accumulation: the results differ, and by the
    magnitude of f16 rounding."""
    model, data, found = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.bf16.tokens.bin"), []
    devices, cells, more = PLANS["one GPU"]
    with tempfile.TemporaryDirectory() as folder:
        loss, gradients = train(folder, "f32-sums", model, data, "f16", devices, cells, more)
        losses, g = train(folder, "f16-sums", model, data, "f16", devices, cells, more, {"accumulate": "f16"})
        off = z.gradient_error(g, gradients)[0]
        found += [z.check("gpt, sums in f16: losses", z.relative(losses, loss), 2e-2), z.check("gpt, sums in f16: first gradients", off, 5e-2),
                  z.check("gpt, sums in f16: they differ from sums in f32", 0 if off > 1e-5 else 1, 0)]
        code, _, err = z.call("zorse-compile", model, "--global-batch-size", BATCH, "--seq-length", LENGTH, "--precision", "bf16", "--accumulate", "f16", "-o", os.path.join(folder, "none.zorse"), ok=False)
        found.append(z.check("sums in f16 are refused in bf16", 0 if code == 1 and "--accumulate: f16 is for --precision f16, got --precision bf16" in err else 1, 0))
    return found


if __name__ == "__main__":
    main()
