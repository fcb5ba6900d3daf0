"""Makes a folder to carry to a machine with a GPU, where check.py runs it: compiled bundles, the runtime with every library it needs, data.

    make_suite.py OUT [--arch sm_90] [--gpt2 GPT2.onnx] [--quick]     default sm_80: newer GPUs run it, too. emu: the emulator of test/emulator, to try the suite itself

There, nothing but the NVIDIA driver, cuBLASLt and Python 3 with numpy is needed: OUT/check.sh. With --gpt2, an export of models/make_benchmark.py, the suite also measures GPT-2 124M; its
weights are drawn there.
"""
import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import cuda
import harness as z

UNITS, BATCH, LENGTH = cuda.UNITS, cuda.BATCH, cuda.LENGTH
PLANS = {name: cuda.PLANS[name] for name in ("one GPU", "GPU and processor, shares 5 and 3", "stages, processor in the middle", "split backward", "two devices on one GPU")}


def write_cluster(path, devices, arch, memory):
    with open(path, "w") as f:
        f.write("name: suite\nnodes:\n  - name: here\n    devices:\n")
        for d in devices:
            f.write(f"      - {{ name: {d}, " + (f"kind: cuda, arch: {arch}" if d.startswith("g") else "kind: cpu, threads: 1, arch: x86-64-v3") + f", speed: 1e10, memory: {memory} }}\n")
    return path


HOST = [{"moments": "host", "parameters": "host", "gradients": "host"}]
# Memory techniques: keys of a plan whose cells are cut by samples alone, and whether they are cut by units, too. The first of either kind is what the others compare with.
TECHNIQUES = {
    "activations kept": ({}, False),
    "activations recomputed": ({"activations": "recompute"}, False),
    "activations offloaded": ({"activations": "offload"}, False),
    "moments on the host": ({"residency": [{"moments": "host"}]}, False),
    "state on the host": ({"residency": HOST}, False),
    "updates by the host": ({"residency": HOST + [{"update": "host"}]}, False),
    "chunks": ({"schedule": "ministages"}, True),
    "parameters by phase": ({"schedule": "ministages", "residency": HOST + [{"gather": "phase"}]}, True),
}


def technique_cells(batch, parts, cuts, by_units):
    """Micro-batches on g0; with by_units also model chunks."""
    ends = cuts if by_units else cuts[-1:]
    return [(begin, end, batch * i // parts, batch * (i + 1) // parts, "g0") for begin, end in zip([0] + ends, ends) for i in range(parts)]


# The C library, its loader and what belongs to them: carried apart, since the other machine's own are used where they are new enough.
C_LIBRARY = re.compile(r"/(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s)[.-][^/]*$")


def carry_runtime(out):
    """zorse-run, and all that the loader gives it."""
    for folder in ("lib", "libc"):
        os.makedirs(os.path.join(out, folder))
    program = os.path.join(z.BIN, "zorse-run")
    subprocess.run(["strip", "-o", os.path.join(out, "zorse-run"), program], check=True)
    for path in re.findall(r"(/\S+)", subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout):
        shutil.copy(path, os.path.join(out, "libc" if C_LIBRARY.search(path) else "lib"))


def carry_pytorch_step(out):
    """What trains the same model in PyTorch, where there is one."""
    models = os.path.join(z.ROOT, "models")
    os.makedirs(os.path.join(out, "models"))
    shutil.copy(os.path.join(z.ROOT, "test", "benchmark", "torch_step.py"), out)
    shutil.copy(os.path.join(models, "benchmark_models.py"), os.path.join(out, "models"))
    shutil.copytree(os.path.join(models, "modules"), os.path.join(out, "models", "modules"), ignore=shutil.ignore_patterns("__pycache__"))


def parameters(onnx_file):
    """Name and shape of every float initializer."""
    import onnx
    model = onnx.load(onnx_file, load_external_data=False)
    return {t.name: list(t.dims) for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--arch", default="sm_80")
    parser.add_argument("--gpt2")
    parser.add_argument("--quick", action="store_true", help="GPT in f32 alone")
    options = parser.parse_args()
    out = os.path.abspath(options.out)
    os.makedirs(out)
    carry_runtime(out)
    here = os.path.dirname(os.path.abspath(__file__))
    for path in (os.path.join(here, "check.py"), os.path.join(here, "check.sh"), z.__file__):
        shutil.copy(path, out)
    shutil.copy(os.path.join(z.SMALL, "gpt.bf16.tokens.bin"), os.path.join(out, "tokens.bin"))
    cases, numbers = [], itertools.count()

    def add(name, model, precision, devices, cells, more, batch=BATCH, length=LENGTH, memory="8GiB", extra=(), **facts):
        folder = os.path.join(out, "work")
        os.makedirs(folder, exist_ok=True)
        plan = z.plan(folder, "p", batch, devices, cells, **more)
        bundle = f"{next(numbers)}.zorse"
        z.compile(model, os.path.join(out, bundle), write_cluster(os.path.join(folder, "c.yaml"), devices, options.arch, memory), batch, length, plan,
                  {"optimizer": "adamw", "lr": "1e-3", "clip": "1.0"}, precision, extra=extra)
        cases.append({"name": name, "bundle": bundle, "precision": precision, "model": os.path.basename(model), **facts})
        print(f"{len(cases)}: {name}", flush=True)

    for model in ("gpt",) if options.quick else ("gpt", "llama"):
        path = os.path.join(z.SMALL, model + ".onnx")
        for precision in ("f32",) if options.quick else ("f32", "bf16", "f16"):
            add(f"{model}, {precision}, processor", path, precision, ["c0"], [(0, UNITS, 0, BATCH, "c0")], {})
            for plan, (devices, cells, more) in PLANS.items():
                if plan == "one GPU" or precision == "f32" or model == "gpt":
                    add(f"{model}, {precision}, {plan}", path, precision, devices, cells, more)
    if not options.quick:
        for name, (more, by_units) in TECHNIQUES.items():
            add(f"gpt, bf16, {name}", os.path.join(z.SMALL, "gpt.onnx"), "bf16", ["g0"], technique_cells(BATCH, 4, [2, 4, 6, UNITS], by_units), {"schedule": "gpipe", **more}, technique="by units" if by_units else "by samples")
    suite = {"arch": options.arch, "cases": cases}
    if options.gpt2:
        carry_pytorch_step(out)
        add("GPT-2 124M, bf16, 32 x 1024, one GPU", options.gpt2, "bf16", ["g0"], [(0, 26, 0, 32, "g0")], {}, 32, 1024, "20GiB", ("--weights", "later"))
        suite["gpt2"] = {"bundle": cases.pop()["bundle"], "parameters": parameters(options.gpt2), "tokens": 32 * 1024}
        suite["gpt2_techniques"] = []
        for name, (more, by_units) in TECHNIQUES.items():
            add(f"GPT-2 124M, {name}", options.gpt2, "bf16", ["g0"], technique_cells(32, 4, [5, 11, 17, 23, 26], by_units), {"schedule": "gpipe", **more}, 32, 1024, "60GiB", ("--weights", "later"))
            suite["gpt2_techniques"].append(cases.pop())
    with open(os.path.join(out, "suite.json"), "w") as f:
        json.dump(suite, f, indent=1)
    shutil.rmtree(os.path.join(out, "work"))
    packed = shutil.make_archive(out, "gztar", os.path.dirname(out), os.path.basename(out))
    print(f"{packed}: {len(cases)} bundles for {options.arch}, {os.path.getsize(packed) / 2**20:.0f} MiB; on the machine with the GPU: tar xf {os.path.basename(packed)} && {os.path.basename(out)}/check.sh")


if __name__ == "__main__":
    main()
