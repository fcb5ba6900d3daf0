"""Trains a model whose training state is several times larger than the device memory: parameters, optimizer states and
gradients on the host, parameters gathered by phase, activations recomputed.

    larger_than_memory.py [--quick]     --quick: fewer steps and micro-batches

Runs on a CPU and on an emulated GPU with the largest arena that the cluster file allows. Without memory optimizations
the plan is refused. With them, training is bit-identical to a run that keeps everything on a device without limits. A
plan that the compiler finds itself matches to 1e-6. The test also reads the programs: parameters are copied to the
device at most twice per step and unit, independent of the number of micro-batches; at most the two largest neighboring
chunks are there at the same time; no state stays on the device.
"""
import os
import re
import shutil
import sys
import tempfile

import numpy as np

import cuda
import harness as z

QUICK = "--quick" in sys.argv
UNITS, BATCH, LENGTH, STEPS, MEMORY = 34, 4, 64, 2 if QUICK else 5, 13 << 20
HOST = [{"parameters": "host", "optimizer_states": "host", "gradients": "host", "reshard_after_forward": True}]


def cluster(folder, device, memory):
    path = os.path.join(folder, f"cluster-{memory}.yaml")
    kind = "kind: cuda, arch: emu" if device.startswith("g") else "kind: cpu, threads: 1"
    with open(path, "w") as f:
        f.write(f"name: test\nnodes:\n  - name: here\n    devices:\n      - {{ name: {device}, {kind}, flops_per_second: 1e10, memory: {memory} }}\n")
    return path


def chunks():
    cuts = [0] + list(range(1, UNITS, 2)) + [UNITS]
    return list(zip(cuts, cuts[1:]))


def size_of(place):
    return int(place.split("+")[1])


class Program:
    """Memory use of a device, parsed from the text of its program."""

    def __init__(self, bundle, device):
        text = z.call("zorse-inspect", bundle, f"--program={device}")[1].splitlines()
        self.arenas = dict(re.search(r"exec.arena (\w+) (\d+)", line).groups() for line in text if "exec.arena" in line)
        self.state = sum(size_of(re.search(r"at (\S+)", line).group(1)) for line in text if "exec.state" in line)
        self.on_device = sum(size_of(re.search(r"at (0:\S+)", line).group(1)) for line in text if re.search(r"exec.state (parameters|moments).* at 0:", line))
        self.images, self.fetches, instruction, now = [], {}, 0, {}  # images: [bytes, first instruction, last instruction]
        for line in text:
            instruction += " exec." in line and "exec.call" not in line
            if m := re.search(r"exec.copy \d+ parameters (\d+) \"(.*)\" .* into (0:\S+) on \S+ in (?:gather|backward)", line):
                self.fetches[m.group(2)] = self.fetches.get(m.group(2), 0) + 1
                now[m.group(1)] = [size_of(m.group(3)), instruction, instruction]
                self.images.append(now[m.group(1)])
            elif m := re.search(r"read parameters (\d+) ", line):
                if m.group(1) in now:
                    now[m.group(1)][2] = instruction

    def most_images(self):
        changes = sorted([(first, size) for size, first, _ in self.images] + [(last + 0.5, -size) for size, _, last in self.images])
        return max(np.cumsum([c for _, c in changes]))


def main():
    results, figures = [], []
    devices = ["c0"]
    if os.path.exists(os.path.join(cuda.STANDIN, "libcuda.so.1")):
        devices.append("g0")
        os.environ["LD_LIBRARY_PATH"] = cuda.STANDIN + ":" + os.environ.get("LD_LIBRARY_PATH", "")

    def expect(what, good, found=""):
        results.append(good)
        print(f"{'ok  ' if good else 'FAIL'} {what}{': ' + str(found)[-400:] if found != '' else ''}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "gpt-deep.onnx")
        shutil.copy(os.path.join(z.SMALL, "gpt-deep.onnx"), model)
        np.random.default_rng(1).normal(0, 0.02, 7_400_000).astype(np.float32).tofile(model + ".data")
        data = os.path.join(z.SMALL, "gpt.tokens.bin")
        for device in devices:
            fetched = []
            for rows in (2,) if QUICK else (2, 1):
                cells = [(u, v, s, s + rows, device) for u, v in chunks() for s in range(0, BATCH, rows)]

                def train(name, memory, **more):
                    bundle = os.path.join(folder, name + ".zorse")
                    plan = z.plan(folder, name, BATCH, [device], cells, schedule="breadth_first", **more)
                    code, _, err = z.compile(model, bundle, cluster(folder, device, memory), BATCH, LENGTH, plan, z.ADAMW, ok=False)
                    if code:
                        return bundle, err
                    checkpoint = os.path.join(folder, "c")
                    metrics = z.run(bundle, data, STEPS, checkpoint=checkpoint)
                    with open(checkpoint, "rb") as f:
                        return bundle, ([(m["loss"], m["grad_norm"]) for m in metrics], f.read())

                label = f"{device}, micro-batches of {rows}: "
                _, refused = train("plain", MEMORY)
                expect(label + "refused without", isinstance(refused, str) and f"device {device} needs" in refused, refused if isinstance(refused, str) else "trained")
                bundle, found = train("small", MEMORY, offload=HOST, activations="recompute")
                _, expected = train("large", "2GiB")
                expect(label + "trains with, to every bit", not isinstance(found, str) and found == expected, found if isinstance(found, str) else "")
                if isinstance(found, str):
                    continue
                program = Program(bundle, device)
                fetched.append(program.fetches)
                arena = int(program.arenas["device"])
                sizes = [sum(size for size, *_ in program.images[0:2])] + [sum(size for size, *_ in program.images[i:i + 4]) for i in range(len(program.images))]
                often = {name: count for name, count in program.fetches.items() if count > 2 * len(name.split(" + "))}  # tied groups: for every unit
                expect(label + "parameters come at most twice a step and unit", not often, often or max(program.fetches.values()))
                expect(label + "never more of them than two neighboring chunks", program.most_images() <= max(sizes), f"{program.most_images()} of {max(sizes)} bytes")
                expect(label + "no state stays on the device", program.on_device == 0)
                expect(label + "the arena is less than a third of the state", 3 * arena < program.state, f"{arena} of {program.state} bytes")
                figures.append(program.state / MEMORY)
            # Without a plan, the compiler finds one.
            chosen, losses = os.path.join(folder, "chosen.zorse"), []
            code, _, err = z.compile(model, chosen, cluster(folder, device, MEMORY), BATCH, LENGTH, training=z.ADAMW, ok=False)
            if code == 0 and not isinstance(found, str):
                losses = [abs(m["loss"] / loss - 1) for m, (loss, _) in zip(z.run(chosen, data, STEPS), found[0])]
            expect(f"{device}: a plan is found, which trains to the same losses", losses and max(losses) < 1e-6, max(losses) if losses else err)
            if len(fetched) > 1:
                expect(f"{device}: number of fetches independent of micro-batches", fetched[0] == fetched[1])
    z.finish(results, f"state of {min(figures or [0]):.1f} times the memory of the device trains on it (aim 4)" if min(figures or [0]) >= 4 else "state is less than 4 times the memory")


if __name__ == "__main__":
    main()
