"""Makes the validation kit, a folder and its archive, for a machine with a GPU: compiled bundles and kernels, the
runtime with every library it needs, data.

    make_kit.py OUT [--arch sm_80] [--gpt2 GPT2.onnx] [--quick]     newer GPUs run the code of older ones. native: this machine's GPU. emu: the emulator of
                                                                    test/emulator, to test the kit itself

The other machine needs only the NVIDIA driver, cuBLASLt and Python 3 with numpy: OUT/run.sh. With --gpt2, an export of
models/make_benchmark.py, the kit also measures GPT-2 124M with random weights, which are drawn on the other machine.
"""
import argparse
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import cuda
import harness as z

UNITS, BATCH, LENGTH = cuda.UNITS, cuda.BATCH, cuda.LENGTH
PLANS = {name: cuda.PLANS[name] for name in ("one GPU", "GPU and processor, shares 5 and 3", "stages, processor in the middle", "split backward", "two devices on one GPU")}


def write_cluster(path, devices, arch, memory):
    with open(path, "w") as f:
        f.write("name: kit\nnodes:\n  - name: here\n    devices:\n")
        for d in devices:
            f.write(f"      - {{ name: {d}, " + (f"kind: cuda, arch: {arch}" if d.startswith("g") else "kind: cpu, threads: 1, arch: x86-64-v3") + f", flops_per_second: 1e10, memory: {memory} }}\n")
    return path


RESERVE = 1907  # MiB: the 2 GB of a GPU that cluster files reserve in addition to its program
HOST = [{"optimizer_states": "host", "parameters": "host", "gradients": "host"}]
# Memory optimizations: keys of a plan, and whether its cells are cut by units as well as by samples. The others are
# compared with the first one of the same tiling.
TECHNIQUES = {
    "activations kept": ({}, False),
    "activations recomputed": ({"activations": "recompute"}, False),
    "activations offloaded": ({"activations": "offload"}, False),
    "moments on the host": ({"offload": [{"optimizer_states": "host"}]}, False),
    "state on the host": ({"offload": HOST}, False),
    "updates by the host": ({"offload": HOST + [{"optimizer": "host"}]}, False),
    "chunks": ({"schedule": "breadth_first"}, True),
    "parameters by phase": ({"schedule": "breadth_first", "offload": HOST + [{"reshard_after_forward": True}]}, True),
}


def technique_cells(batch, parts, cuts, by_units):
    """Micro-batches on g0; with by_units also model chunks."""
    ends = cuts if by_units else cuts[-1:]
    return [(begin, end, batch * i // parts, batch * (i + 1) // parts, "g0") for begin, end in zip([0] + ends, ends) for i in range(parts)]


# The C library, its loader and related libraries. They are kept separately, because the other machine's own are used if
# they are new enough.
C_LIBRARY = re.compile(r"/(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s)[.-][^/]*$")


def carry_runtime(out):
    """Copies the programs and the libraries that they load."""
    for folder in ("lib", "libc", "programs"):
        os.makedirs(os.path.join(out, folder))
    for name in ("zorse-run", "gpu-probe"):
        program = os.path.join(z.BIN, name)
        subprocess.run(["strip", "-o", os.path.join(out, "programs", name), program], check=True)
        for path in re.findall(r"(/\S+)", subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout):
            shutil.copy(path, os.path.join(out, "libc" if C_LIBRARY.search(path) else "lib"))


def carry_pytorch_step(out):
    """Copies the programs that train the same model in PyTorch, if it is installed."""
    models = os.path.join(z.ROOT, "models")
    os.makedirs(os.path.join(out, "models"))
    shutil.copy(os.path.join(z.ROOT, "test", "benchmark", "torch_step.py"), out)
    shutil.copy(os.path.join(models, "benchmark_models.py"), os.path.join(out, "models"))
    shutil.copytree(os.path.join(models, "modules"), os.path.join(out, "models", "modules"), ignore=shutil.ignore_patterns("__pycache__"))


ARCHITECTURES = ("sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")


def carry_modules(out, model, archs):
    """Kernels of one model for every architecture, for the driver to compile."""
    with tempfile.TemporaryDirectory() as work:
        for arch in archs:
            bundle, cells = os.path.join(work, arch + ".zorse"), [(0, UNITS, 0, BATCH, "g0")]
            z.compile(model, bundle, write_cluster(os.path.join(work, "c.yaml"), ["g0"], arch, "8GiB"), BATCH, LENGTH, z.plan(work, "p", BATCH, ["g0"], cells), precision="f32" if arch == "emu" else "f16")
            shutil.copytree(os.path.join(bundle, "kernels", arch), os.path.join(out, "modules", arch))


def carry_cases(out, arch, quick):
    """Test cases of kernels with expected results, and large cases for timing."""
    precision = [] if arch == "emu" or int(arch[3:]) >= 80 else ["--type=f16"]
    quick = ["--class=softmax", "--type=f32"] if quick else precision
    for folder, more in (("cases", ["--quick"]), ("times", ["--times"])):
        words = [os.path.join(z.BIN, "kernel-conformance"), f"--arch={arch}", f"--record={os.path.join(out, folder)}", *more, *quick]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"kernel-conformance --record: {(done.stdout + done.stderr).strip().splitlines()[-1]}")


# Name, m, n, k, batch of products. Forward, input gradient and weight gradient are the transposes.
PRODUCTS = [("gpt2-attention", 8192, 2304, 768, 1), ("gpt2-mlp", 8192, 3072, 768, 1), ("gpt2-head", 8192, 50257, 768, 1), ("llama-mlp", 4096, 11008, 4096, 1), ("llama-heads", 2048, 2048, 128, 32)]
ODD = [("odd", 1023, 1025, 511, 1, 0, 0), ("odd-rows", 1024, 1000, 768, 1, 3, 0), ("odd-address", 1024, 1024, 1024, 1, 0, 1), ("odd-batch", 97, 33, 129, 7, 1, 4), ("one-column", 4096, 1, 1024, 1, 0, 0)]


def write_products(out, arch):
    """Writes the list that `gpu-probe products` reads."""
    precisions = ["f32", "f16"] + (["bf16"] if arch == "emu" or int(arch[3:]) >= 80 else [])
    with open(os.path.join(out, "products.txt"), "w") as f:
        for name, m, n, k, batch in [] if arch == "emu" else PRODUCTS:
            for precision in precisions[1:]:
                for transpose, sizes in (("nn", (m, n, k)), ("nt", (m, k, n)), ("tn", (k, n, m))):
                    f.write(f"{name}-{transpose}-{precision} {precision} {transpose} {sizes[0]} {sizes[1]} {sizes[2]} {batch} 0 0\n")
                if batch == 1:
                    f.write(f"{name}-bias-{precision} {precision}+bias nt {m} {n} {k} 1 0 0\n")
        for name, m, n, k, batch, pad, offset in ODD:
            scale = 8 if arch == "emu" else 1
            for precision in precisions:
                sizes = f"{max(1, m // scale)} {max(1, n // scale)} {max(1, k // scale)} {batch} {pad} {offset}\n"
                for transpose in ("nn", "nt", "tn"):
                    f.write(f"{name}-{transpose}-{precision} {precision} {transpose} {sizes}")
                if batch == 1:
                    f.write(f"{name}-bias-{precision} {precision}+bias nt {sizes}")


def memory_case(out, case):
    """The GPU memory that a bundle needs: its program's arenas on the device, and the reserve of cluster files."""
    text = subprocess.run([os.path.join(z.BIN, "zorse-inspect"), os.path.join(out, case["bundle"])], capture_output=True, text=True, check=True).stdout
    number, unit = re.search(r"cuda .*? ([\d.]+) ([KMG]iB) of ", text).groups()
    planned = math.ceil(float(number) * {"KiB": 2**-10, "MiB": 1, "GiB": 2**10}[unit] * 1.01) + 1  # MiB; the printed number is rounded
    return {"bundle": case["bundle"], "planned": planned, "reserve": RESERVE, "mebibytes": planned + RESERVE}


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
    parser.add_argument("--quick", action="store_true", help="only GPT in f32")
    options = parser.parse_args()
    if options.arch == "native":
        said = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True, text=True, check=True).stdout
        options.arch = "sm_" + said.splitlines()[0].replace(".", "")
    out = os.path.abspath(options.out)
    os.makedirs(out)
    carry_runtime(out)
    here = os.path.dirname(os.path.abspath(__file__))
    for path in [os.path.join(here, "kit", name) for name in sorted(os.listdir(os.path.join(here, "kit"))) if name.endswith((".py", ".sh"))] + [z.__file__]:
        shutil.copy(path, out)
    shutil.copy(os.path.join(z.SMALL, "gpt.bf16.tokens.bin"), os.path.join(out, "tokens.bin"))
    cases, numbers = [], itertools.count()

    def add(name, model, precision, devices, cells, more, batch=BATCH, length=LENGTH, memory="8GiB", extra=(), **facts):
        folder = os.path.join(out, "work")
        os.makedirs(folder, exist_ok=True)
        plan = z.plan(folder, "p", batch, devices, cells, **more)
        bundle = f"{next(numbers)}.zorse"
        z.compile(model, os.path.join(out, bundle), write_cluster(os.path.join(folder, "c.yaml"), devices, options.arch, memory), batch, length, plan,
                  {"optimizer": "adamw", "lr": "1e-3", "max-grad-norm": "1.0"}, precision, extra=extra)
        cases.append({"name": name, "bundle": bundle, "precision": precision, "model": os.path.basename(model), **facts})
        print(f"{len(cases)}: {name}", flush=True)

    precisions = ("f32", "bf16", "f16") if options.arch == "emu" or int(options.arch[3:]) >= 80 else ("f32", "f16")
    for model in ("gpt",) if options.quick else ("gpt", "llama"):
        path = os.path.join(z.SMALL, model + ".onnx")
        for precision in ("f32",) if options.quick else precisions:
            add(f"{model}, {precision}, processor", path, precision, ["c0"], [(0, UNITS, 0, BATCH, "c0")], {})
            for plan, (devices, cells, more) in PLANS.items():
                if plan == "one GPU" or precision == "f32" or model == "gpt":
                    add(f"{model}, {precision}, {plan}", path, precision, devices, cells, more)
            if model == "gpt" and precision == "f32" and "bf16" in precisions:  # compared with the CPU
                add("gpt, tf32, one GPU", path, "tf32", *PLANS["one GPU"])
    if not options.quick:
        for name, (more, by_units) in TECHNIQUES.items():
            add(f"gpt, {precisions[1]}, {name}", os.path.join(z.SMALL, "gpt.onnx"), precisions[1], ["g0"], technique_cells(BATCH, 4, [2, 4, 6, UNITS], by_units), {"schedule": "gpipe", **more}, technique="by units" if by_units else "by samples")
    carry_modules(out, os.path.join(z.SMALL, "gpt.onnx"), ["emu"] if options.arch == "emu" else ARCHITECTURES)
    carry_cases(out, options.arch, options.quick)
    write_products(out, options.arch)
    version = subprocess.run([os.path.join(z.BIN, "zorse-run"), "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    kit = {"arch": options.arch, "version": version, "cases": cases, "memory": memory_case(out, next(c for c in cases if c["name"].endswith("f32, one GPU")))}
    if options.gpt2:
        carry_pytorch_step(out)
        add(f"GPT-2 124M, {precisions[1]}, 32 x 1024, one GPU", options.gpt2, precisions[1], ["g0"], [(0, 26, 0, 32, "g0")], {}, 32, 1024, "20GiB", ("--weights", "defer"))
        kit["gpt2"] = {**cases.pop(), "parameters": parameters(options.gpt2), "tokens": 32 * 1024}
        kit["gpt2_techniques"] = []
        for name, (more, by_units) in TECHNIQUES.items():
            add(f"GPT-2 124M, {name}", options.gpt2, precisions[1], ["g0"], technique_cells(32, 4, [5, 11, 17, 23, 26], by_units), {"schedule": "gpipe", **more}, 32, 1024, "60GiB", ("--weights", "defer"))
            kit["gpt2_techniques"].append(cases.pop())
    with open(os.path.join(out, "kit.json"), "w") as f:
        json.dump(kit, f, indent=1)
    shutil.rmtree(os.path.join(out, "work"))
    packed = shutil.make_archive(out, "xztar", os.path.dirname(out), os.path.basename(out))
    print(f"{packed}: {len(cases)} bundles for {options.arch}, {os.path.getsize(packed) / 2**20:.0f} MiB; on the machine with the GPU: tar xf {os.path.basename(packed)} && {os.path.basename(out)}/run.sh")


if __name__ == "__main__":
    main()
