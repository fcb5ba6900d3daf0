"""Checks that models compile for a cluster of ten GPU types and that NVIDIA's assembler accepts all kernels.

    assemble.py [--quick] [--ptxas PATH] [--gpt2 ONNX]     --quick: two small models, four architectures

Fails if a kernel does not assemble, if a symbol is undefined, or if registers spill in elementwise or row kernels.
ptxas is taken from PATH, $PTXAS, the system, or the Python package nvidia-cuda-nvcc-cu12 in .cache/ptxas (fetched by
tools/ptxas.sh). Without ptxas, the test only compiles and exits with code 77.
"""
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import harness as z

TYPES = {"P100": "sm_60", "V100-32": "sm_70", "T4": "sm_75", "A100-80": "sm_80", "RTX3090": "sm_86", "RTX4090": "sm_89", "RTX5090": "sm_120", "H100-SXM": "sm_90", "H200": "sm_90", "B200": "sm_100"}
QUICK = ("P100", "T4", "A100-80", "B200")


def assembler():
    given = sys.argv[sys.argv.index("--ptxas") + 1] if "--ptxas" in sys.argv else os.environ.get("PTXAS")
    for path in (given, os.path.join(z.ROOT, ".cache", "ptxas", "nvidia", "cuda_nvcc", "bin", "ptxas"), shutil.which("ptxas")):
        if path and os.path.exists(path):
            return path
    return None


def models(quick):
    yield "gpt", os.path.join(z.SMALL, "gpt.onnx"), ["--seq-length", 32], ("f32", "bf16") if not quick else ("bf16",)
    yield "llama", os.path.join(z.SMALL, "llama.onnx"), ["--seq-length", 32], ("f32", "f16") if not quick else ("f32",)
    if quick:
        return
    if "--gpt2" in sys.argv:
        yield "gpt2-124m", sys.argv[sys.argv.index("--gpt2") + 1], ["--seq-length", 1024, "--weights=reference"], ("bf16",)
    for path in sorted(glob.glob(os.path.join(z.SMALL, "*.onnx")) + glob.glob(os.path.join(z.SMALL, "zoo", "*.onnx"))):
        name = os.path.splitext(os.path.basename(path))[0]
        if name not in ("gpt", "llama"):
            yield name, path, ["--seq-length", 8], ("f32",)


def main():
    quick, ptxas = "--quick" in sys.argv, assembler()
    types = {t: a for t, a in TYPES.items() if not quick or t in QUICK}
    assembled, problems, refused, compiled, slowest = 0, [], [], 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        cluster = os.path.join(folder, "gpus.yaml")
        with open(cluster, "w") as f:
            f.write("name: gpus\nnodes:\n  - name: here\n    devices:\n" + "".join(f"      - {{ name: d{i}, type: {t} }}\n" for i, t in enumerate(types)))
            # Devices without bf16 arithmetic store bf16 and compute in f32.
        for name, model, words, precisions in models(quick):
            for precision in precisions:
                file = cluster
                if precision == "bf16":
                    file = os.path.join(folder, "bf16.yaml")
                    with open(cluster) as f, open(file, "w") as g:
                        g.write(re.sub(r"type: (P100|V100-32|T4) ", r"type: \1, flops_per_second: {f32: 5e12, f16: 2e13, bf16: 5e12} ", f.read()))
                tag = os.path.join(folder, f"{name}-{precision}")
                # One cell per device: every architecture gets all kernels.
                for words in (words, [w for w in words if w not in ("--seq-length", 8)]):  # some models have no sequence axis
                    _, out, err = z.call("zorse-compile", model, "--cluster", cluster, *words, "--global-batch-size", len(types), "--emit", "plan", "--quiet", "--simulate-only", ok=False)
                    if '"units"' in out:
                        break
                units = max((int(u) for u in re.findall(r'"units": *\[ *\d+, *(\d+)', out)), default=0)
                if not units:
                    refused.append(f"{name}: {err.strip().splitlines()[-1][-200:] if err.strip() else out[:100]}")
                    continue
                plan = z.plan(folder, f"{name}-{precision}", len(types), [f"d{i}" for i in range(len(types))], [(0, units, i, i + 1, f"d{i}") for i in range(len(types))])
                begin = time.time()
                code, out, err = z.call("zorse-compile", model, "--cluster", file, *words, "--global-batch-size", len(types), "--plan", plan, "--precision", precision, "--quiet", "-o", tag, ok=False)
                if code:
                    problems.append(f"{name}, {precision}: {err.strip()[-300:]}")
                    continue
                slowest = max(slowest, time.time() - begin)
                compiled += 1
                files = {a: os.path.join(tag, "kernels", a, "kernels.ptx") for a in set(types.values())}
                if not ptxas:
                    continue

                def assemble(item):
                    arch, path = item
                    done = subprocess.run([ptxas, "-arch=" + arch, "-v", path, "-o", path + ".cubin"], capture_output=True, text=True)
                    return arch, path, done

                with concurrent.futures.ThreadPoolExecutor(2) as pool:
                    for arch, path, done in pool.map(assemble, files.items()):
                        if done.returncode:
                            problems.append(f"{name}, {precision}, {arch}: {done.stderr.strip()[:300]}")
                            continue
                        assembled += open(path).read().count(".entry")
                        for kernel, spilled in re.findall(r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores", done.stderr, re.S):
                            if int(spilled):
                                problems.append(f"{name}, {precision}, {arch}: {kernel} spills {spilled} bytes")
                shutil.rmtree(tag)
                print(f"{name}, {precision}: {len(files)} architectures", flush=True)
    for line in refused:
        print("refused, as elsewhere:", line)
    for line in problems:
        print("FAIL", line)
    if problems:
        sys.exit(1)
    if not ptxas:
        print(f"{compiled} models and precisions compile for {len(set(types.values()))} architectures; there is no assembler here")
        sys.exit(77)
    print(f"{compiled} models and precisions, {len(set(types.values()))} architectures, {assembled} kernels assembled, none spills; slowest compilation of all architectures {slowest:.1f} s")


if __name__ == "__main__":
    main()
