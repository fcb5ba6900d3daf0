"""The placement of state, the device that updates it and the time of transfers change no bit. Plans keep parameters,
optimizer states and gradients in either memory; update them on the device or on the host CPU, all groups after the
last gradient or each as soon as its gradients are reduced; gather parameters once per step or by phase; and keep,
recompute or offload activations. Each is compared with the same plan with everything on the device.

    state_tiers.py [--quick]     --quick: CPUs in f32, emulated GPUs in bf16
    state_tiers.py --poison-after-last-use [--quick]     only runs in which every byte becomes NaN after its last read

The order of tasks, the owners and the kernels are the same: losses, norms, gradients of the first step and the final
checkpoint are byte-identical, in f32, f64 and bf16, on CPUs and on emulated GPUs, in threads and in processes. A run
that is stopped under one plan resumes under another with different memory placement and has the result of an
uninterrupted run.
"""
import os
import random
import sys
import tempfile

import cuda
import harness as z

QUICK, SPOIL = "--quick" in sys.argv, "--poison-after-last-use" in sys.argv
UNITS, BATCH, LENGTH, STEPS = 8, 8, 32, 6
TILINGS = {  # devices and cells (first unit, end unit, first sample, end sample, device)
    "one device": (1, [(0, 8, 0, 4, 0), (0, 8, 4, 8, 0)], {}),
    "stages": (2, [(0, 4, 0, 4, 0), (0, 4, 4, 8, 0), (4, 8, 0, 4, 1), (4, 8, 4, 8, 1)], {}),
    "ministages": (1, [(u, u + 2, s, s + 4, 0) for u in (0, 2, 4, 6) for s in (0, 4)], {"schedule": "breadth_first"}),
    "ministages, uneven shares": (3, [(u, v, s, t, d) for u, v in ((0, 3), (3, 5), (5, 8)) for s, t, d in ((0, 2, 0), (2, 5, 0), (5, 8, 1))],
                                  {"schedule": "breadth_first", "owners": [(0, 50), (2, 30), (1, 20)]}),
    "ministages, dealt": (2, [(u, u + 2, s, s + 4, u // 2 % 2) for u in (0, 2, 4, 6) for s in (0, 4)], {"schedule": "breadth_first"}),
    "uneven shares": (3, [(0, 8, 0, 5, 0), (0, 8, 5, 8, 1)], {"owners": [(0, 50), (2, 30), (1, 20)]}),
}
KINDS = ("parameters", "optimizer_states", "gradients")
UNCLIPPED = {**z.ADAMW, "max-grad-norm": "0"}


def draw(randoms, names):
    """A residency table (everything on the host, or up to three random rules) and a treatment of activations."""
    return draw_rules(randoms, names), randoms.choice(("keep", "recompute", "offload"))


def draw_rules(randoms, names):
    if randoms.random() < 0.3:
        return [{**dict.fromkeys(KINDS, "host"), "reshard_after_forward": True, "optimizer": randoms.choice(("host", "host", "device"))}]
    rules = []
    if randoms.random() < 0.6:
        rules.append({"reshard_after_forward": True, **({"groups": sorted(randoms.sample(range(6), 4))} if randoms.random() < 0.3 else {})})
    if randoms.random() < 0.4:
        rules.append({"buffer_count": randoms.randint(1, 3)})
    for _ in range(randoms.randint(1, 3)):
        rule = {kind: randoms.choice(("host", "host", "device")) for kind in KINDS if randoms.random() < 0.7}
        if randoms.random() < 0.5:
            rule["devices"] = randoms.sample(names, randoms.randint(1, len(names)))
        if randoms.random() < 0.5:
            rule["groups"] = sorted(randoms.sample(range(6), randoms.randint(1, 6)))
        if any(kind in rule for kind in KINDS):
            rules.append(rule)
    if randoms.random() < (0.7 if QUICK else 0.4):
        rules.append({"parameters": "host", "optimizer_states": "host", "optimizer": "host", **({"groups": sorted(randoms.sample(range(6), 3))} if randoms.random() < 0.5 else {}),
                      **({"devices": randoms.sample(names, 1)} if randoms.random() < 0.5 else {})})
    return rules or [{"optimizer_states": "host"}]


class Training:
    def __init__(self, folder, precision, names, tiling):
        self.folder, self.precision, self.names = folder, precision, names
        count, cells, more = TILINGS[tiling]
        self.cells = [cell[:4] + (names[cell[4]],) for cell in cells]
        self.more, self.state = {"schedule": more.get("schedule", "gpipe")}, {}
        if "owners" in more:
            self.state = {"groups": [{"group": "*", "owners": [{"device": names[d], "fraction": share / 100} for d, share in more["owners"]]}]}
        self.model = os.path.join(z.SMALL, "gpt.onnx")
        self.data = os.path.join(z.SMALL, "gpt.bf16.tokens.bin" if precision == "bf16" else "gpt.tokens.bin")
        self.cluster = cuda.cluster(folder, names)

    def bundle(self, table, training=z.ADAMW, commit="step"):
        path = os.path.join(self.folder, "tiers.zorse")
        residency, activations = table or (None, "keep")
        state = {**self.state, **({} if commit == "step" else {"optimizer_in_backward": True})}
        more = {**self.more, **({"offload": residency} if residency else {}), **({"state": state} if state else {}), "activations": activations}
        plan = z.plan(self.folder, "tiers", BATCH, self.names, self.cells, **more)
        z.compile(self.model, path, self.cluster, BATCH, LENGTH, plan, training, self.precision)
        return path

    def outcome(self, table, *words, **how):
        gradients, checkpoint = os.path.join(self.folder, "g"), os.path.join(self.folder, "c")
        metrics = z.run(self.bundle(table, **how), self.data, STEPS, gradients=None if "--spawn" in words else gradients, checkpoint=checkpoint, extra=words)
        read = lambda path: open(path, "rb").read()
        return [(m["loss"], m["grad_norm"]) for m in metrics], b"" if "--spawn" in words else read(gradients), read(checkpoint)

    def resumed(self, first, then):
        """The checkpoint of a run that stops after half of its steps under one plan and resumes under another."""
        snapshots, checkpoint = os.path.join(self.folder, "s"), os.path.join(self.folder, "c")
        z.run(self.bundle(first), self.data, STEPS // 2, extra=("--checkpoint-dir", snapshots, "--lr-decay-steps", STEPS))
        z.run(self.bundle(then), self.data, STEPS, checkpoint=checkpoint, extra=("--checkpoint-dir", snapshots, "--lr-decay-steps", STEPS, "--resume"))
        return open(checkpoint, "rb").read()


def same(name, found, expected):
    good = found == expected
    print(f"{'ok  ' if good else 'FAIL'} {name}", flush=True)
    return good


def main():
    standin = os.path.exists(os.path.join(cuda.STANDIN, "libcuda.so.1"))
    if standin:
        os.environ["ZORSE_EMULATOR_DEVICES"] = "2"
        os.environ["LD_LIBRARY_PATH"] = cuda.STANDIN + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    results, randoms = [], random.Random(18)
    places = [["c0", "c1", "c2"]] + ([["g0", "c0", "g1"]] if standin else [])
    for precision in ("f32", "bf16") if QUICK else ("f32", "bf16", "f64"):
        for all_names in places:
            if "g0" in all_names and precision == ("f32" if QUICK else "f64"):
                continue
            if QUICK and precision == "bf16" and all_names[0] == "c0" and len(places) > 1:
                continue
            for tiling in TILINGS:
                with tempfile.TemporaryDirectory() as folder:
                    names = all_names[:TILINGS[tiling][0]]
                    training = Training(folder, precision, names, tiling)
                    expected = training.outcome(None)
                    tables = [draw(randoms, names) for _ in range(1 if QUICK else 5)]
                    if SPOIL:
                        unclipped = training.outcome(None, training=UNCLIPPED)
                        for table in tables:
                            results.append(same(f"{precision}, {tiling} ({', '.join(names)}), {table}, dead bytes overwritten", training.outcome(table, "--poison-after-last-use"), expected))
                            found = training.outcome(table, "--poison-after-last-use", training=UNCLIPPED, commit="group")
                            results.append(same(f"{precision}, {tiling} ({', '.join(names)}), {table}, by group, dead bytes overwritten", found, unclipped))
                        continue
                    for table in tables:
                        label = f"{precision}, {tiling} ({', '.join(names)}), {table}"
                        results.append(same(label, training.outcome(table), expected))
                    if "g0" not in names and len(names) > 1:
                        results.append(same(label + ", processes", training.outcome(tables[-1], "--spawn")[2], expected[2]))
                    results.append(same(label + ", then on the device", training.resumed(tables[-1], None), expected[2]))
                    # Without clipping, every group can be updated as soon as its gradients are reduced, with the same
                    # result.
                    unclipped = training.outcome(None, training=UNCLIPPED)
                    for table in [None, tables[0]]:
                        label = f"{precision}, {tiling} ({', '.join(names)}), {table}, by group"
                        results.append(same(label, training.outcome(table, training=UNCLIPPED, commit="group"), unclipped))
    what = "in which dead bytes become NaN" if SPOIL else "with state and activations on the host or made again, updated on either side, by step or by group"
    z.finish(results, f"{len(results)} runs {what}: every bit is that of the run with all state on the device")


if __name__ == "__main__":
    main()
