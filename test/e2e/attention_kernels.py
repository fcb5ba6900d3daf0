"""Checks that every variant of the tensor-core attention kernels assembles for every GPU with tensor cores, without
register spills.

    attention_kernels.py [--quick] [--ptxas PATH] [--keep FOLDER] | --write FILE | --traffic FILE

A variant is a head size, an element type, head counts, sequence lengths, and the treatment of scores: none, causal
mask, sliding window, mask in memory, soft cap, dropout.

    --keep FOLDER     leaves PTX, cubins and LLVM IR of every kernel in FOLDER/<arch>
    --write FILE      only writes the functions: one forward and one backward per variant
    --traffic FILE    only writes the functions that kernel-traffic counts
    --quick           bf16, two treatments of scores, sm_80

Exit code 77: no ptxas was found.
"""
import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import tempfile

import harness as z
from assemble import assembler

SIZES = (32, 64, 80, 96, 128, 256)
KINDS = {
    "causal": "causal",
    "all": "",
    "window": "causal, window = 100 : i64",
    "softcap": "causal, softcap = 30.0 : f64",
    "dropout": "causal, dropout = 0.1 : f64, rng_id = 0 : i64",
    "boolean": "",
    "additive": "",
    "everything": "causal, softcap = 30.0 : f64, dropout = 0.1 : f64, rng_id = 0 : i64",
}
# Head counts decide how addresses are computed: fewer key heads than query heads, and equal counts.
WAYS = {"grouped": {}, "equal": {"key_heads": 4}}
# Lengths that the tile size does not divide, or that fit one tile. Bounds checks need registers, and ptxas reserves
# some bytes.
ODD_LENGTHS = ((1000, 1003), (1500, 1500), (77, 77), (100, 100), (4096, 77), (128, 128))
MOST_SPILLED = 80
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


def argument(kind, index):
    return f"{{zorse.argument = #zorse.argument<{kind}, {index}>}}"


def functions(name, size, element, kind, queries=1024, keys=1024, heads=4, key_heads=2):
    """A forward that returns its softmax statistics, and the backward."""
    q = f"tensor<?x{queries}x{heads}x{size}x{element}>"
    k = f"tensor<?x{keys}x{key_heads}x{size}x{element}>"
    lse = f"tensor<?x{heads}x{queries}{'x2' if kind in ('additive', 'everything') else ''}xf32>"  # two numbers per row with an additive mask
    attributes = ", ".join(filter(None, (f"scale = {size ** -0.5:.6f} : f64", KINDS[kind])))
    mask_type = {"boolean": f"tensor<1x1x{queries}x{keys}xi1>", "additive": f"tensor<1x{heads}x{queries}x{keys}x{element}>", "everything": f"tensor<1x1x{queries}x{keys}x{element}>"}.get(kind)
    mask_argument = f", %m: {mask_type} {argument('parameter', 0)}" if mask_type else ""
    mask, more = (" mask %m", f", {mask_type}") if mask_type else ("", "")
    inputs = f"%q: {q} {argument('boundary_in', 0)}, %k: {k} {argument('boundary_in', 1)}, %v: {k} {argument('boundary_in', 2)}"
    return f"""func.func @{name}.forward({inputs}{mask_argument}) -> ({q} {argument('boundary_out', 0)}, {lse} {argument('saved', 0)}) {{
  %o, %l = zorse.attention %q, %k, %v{mask} {{{attributes}}} : ({q}, {k}, {k}{more}) -> ({q}, {lse})
  return %o, %l : {q}, {lse}
}}
func.func @{name}.backward({inputs}, %o: {q} {argument('boundary_in', 3)}, %l: {lse} {argument('saved', 0)}, %do: {q} {argument('boundary_out_gradient', 0)}{mask_argument})
    -> ({q} {argument('boundary_in_gradient', 0)}, {k} {argument('boundary_in_gradient', 1)}, {k} {argument('boundary_in_gradient', 2)}) {{
  %dq, %dk, %dv = zorse.attention_grad %do, %q, %k, %v, %o, %l{mask} {{{attributes}}} : ({q}, {q}, {k}, {k}, {q}, {lse}{more}) -> ({q}, {k}, {k})
  return %dq, %dk, %dv : {q}, {k}, {k}
}}
"""


def module(sizes, kinds, elements, suffix="", **shape):
    return "".join(functions(f"{kind}_{size}_{element}{suffix}", size, element, kind, **shape) for size in sizes for kind in kinds for element in elements)


def assembled(text, arch, ptxas, folder):
    """Compiles functions for one architecture into a folder and assembles the kernels. Returns [(name, registers, bytes
    spilled)]."""
    os.makedirs(folder, exist_ok=True)
    source = os.path.join(folder, "variants.mlir")
    with open(source, "w") as f:
        f.write(text)
    done = subprocess.run([os.path.join(z.BIN, "zorse-opt"), source, f"--zorse-compile-functions=arch={arch} dump-dir={folder}", "-o", os.devnull], capture_output=True, text=True)
    if done.returncode:
        raise z.Failure(f"{arch}: {done.stderr.strip()[:500]}")

    def assemble(path):
        # A dump does not contain the header of a kernel file.
        with open(path) as f:
            if ".version" not in f.read():
                raise z.Failure(f"{path} does not say for which GPU it is")
        run = subprocess.run([ptxas, "-arch=" + arch, "-v", path, "-o", path[:-4] + ".cubin"], capture_output=True, text=True)
        if run.returncode:
            raise z.Failure(f"{arch}: {path}: {run.stderr.strip()[:300]}")
        return os.path.basename(path)[:-4], int(re.search(r"Used (\d+) registers", run.stderr)[1]), int(re.search(r"(\d+) bytes spill stores", run.stderr)[1])

    if not ptxas:
        return []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(assemble, sorted(glob.glob(os.path.join(folder, "attention_*.ptx")))))


def main():
    quick, ptxas = "--quick" in sys.argv, assembler()
    elements = ("bf16",) if quick else ("bf16", "f16")
    kinds = ("causal", "everything") if quick else tuple(KINDS)
    whole = "".join(module(SIZES, kinds, elements, way, **shape) for way, shape in WAYS.items())
    odd = "" if quick else "".join(module(SIZES, ("causal", "all"), ("bf16",), f"{q}x{k}", queries=q, keys=k, key_heads=4) for q, k in ODD_LENGTHS)
    if "--write" in sys.argv:
        with open(sys.argv[sys.argv.index("--write") + 1], "w") as f:
            f.write(whole)
        return
    if "--traffic" in sys.argv:
        with open(sys.argv[sys.argv.index("--traffic") + 1], "w") as f:
            f.write(module((16, 32, 64, 80, 96, 128, 256), ("causal", "all"), ("bf16",), queries=256, keys=256, heads=2, key_heads=1))
        return
    kept = sys.argv[sys.argv.index("--keep") + 1] if "--keep" in sys.argv else None
    problems, most, counts, odd_spills = [], 0, [0, 0], []
    architectures = ("sm_80",) if quick else ARCHITECTURES
    with tempfile.TemporaryDirectory() as temporary:
        for arch in architectures:
            for index, (text, limit) in enumerate(((whole, 0), (odd, MOST_SPILLED))):
                for name, registers, spilled in assembled(text, arch, ptxas, os.path.join(kept or temporary, arch, ("whole", "odd")[index])) if text else []:
                    counts[index] += 1
                    most = max(most, registers)
                    if spilled > limit:
                        problems.append(f"{arch}: {name} spills {spilled} bytes, at most {limit} are allowed")
                    elif spilled:
                        odd_spills.append(spilled)
            print(f"{arch}: {sum(counts)} kernels so far", flush=True)
    for line in problems:
        print("FAIL", line)
    if not ptxas:
        print("there is no assembler here")
        sys.exit(77)
    if not quick:
        print(f"of {counts[1]} kernels for lengths that tiles do not divide, {len(odd_spills)} set aside up to {max(odd_spills, default=0)} bytes (limit {MOST_SPILLED})")
    print(f"{counts[0]} kernels of attention for {len(architectures)} architectures assembled, {len(problems)} spill (limit 0); at most {most} registers")
    sys.exit(1 if problems or not counts[0] else 0)


if __name__ == "__main__":
    main()
