"""Measures, for kernels that round to 16 bits, the share of integer instructions in the executed instructions of a
warp, from the machine code (test/benchmark/sass/mix.py).

    rounding_mix.py [--quick] [--all]      --quick: only bf16 on sm_80; --all:
                                           also prints the shares of all other kernels that round

Compiles a transformer block without attention (768 channels, a vocabulary of 50,304), and the parameter casts of a
small model, for each architecture and type. Assembles them and counts instructions. Fails if a kernel that only rounds,
adds, applies an activation or computes the gradient of a loss exceeds MOST. Exit code 77 without ptxas (tools/ptxas.sh)
or nvdisasm (tools/nvdisasm.sh).
"""
import glob
import os
import re
import sys
import tempfile

import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "test", "benchmark", "sass"))
import listing  # noqa: E402
import mix  # noqa: E402
import toolchain  # noqa: E402

MOST = 0.30
GPUS = {"sm_80": "A100-80", "sm_90": "H100-SXM", "sm_120": "RTX5090"}
# Names of the graph's kernels.
KINDS = {"residual addition": r"^addf_truncf_", "GELU": r"^mulf_addf_negf_exp_divf_.*truncf_", "gradient of cross-entropy": r"^(cmpi_.*)?subf_exp.*take_along_dim_grad", "cast": r"^cast_"}

GRAPH = """module {{
  func.func @model(%ids: tensor<?x{s}xi64> {{zorse.input = "input_ids"}} loc("input_ids"),
      %table: tensor<{v}x{w}xf32> {{zorse.parameter = "table", zorse.trainable = true}} loc("table"),
      %norm_weight: tensor<{w}xf32> {{zorse.parameter = "norm_weight", zorse.trainable = true}} loc("norm_weight"),
      %bias: tensor<{w}xf32> {{zorse.parameter = "bias", zorse.trainable = true}} loc("bias"),
      %up: tensor<{f}x{w}xf32> {{zorse.parameter = "up", zorse.trainable = true}} loc("up"),
      %down: tensor<{w}x{f}xf32> {{zorse.parameter = "down", zorse.trainable = true}} loc("down"),
      %o: tensor<{v}x{w}xf32> {{zorse.parameter = "o", zorse.trainable = true}} loc("o"))
      -> (tensor<?xf32> {{zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/({s}*B)"}}) {{
    %x = zorse.gather %table, %ids : tensor<{v}x{w}xf32>, tensor<?x{s}xi64> -> tensor<?x{s}x{w}xf32> loc("embed")
    %n = zorse.layer_norm %x weight %norm_weight bias %bias {{epsilon = 1.0e-5 : f64}} : (tensor<?x{s}x{w}xf32>, tensor<{w}xf32>, tensor<{w}xf32>) -> tensor<?x{s}x{w}xf32> loc("norm")
    %u = zorse.matmul %n, %up {{transpose_b}} : tensor<?x{s}x{w}xf32>, tensor<{f}x{w}xf32> -> tensor<?x{s}x{f}xf32> loc("up")
    %a = zorse.gelu %u {{approximate}} : tensor<?x{s}x{f}xf32> loc("gelu")
    %d = zorse.matmul %a, %down {{transpose_b}} : tensor<?x{s}x{f}xf32>, tensor<{w}x{f}xf32> -> tensor<?x{s}x{w}xf32> loc("down")
    %r = arith.addf %x, %d : tensor<?x{s}x{w}xf32> loc("residual")
    %l = zorse.matmul %r, %o {{transpose_b}} : tensor<?x{s}x{w}xf32>, tensor<{v}x{w}xf32> -> tensor<?x{s}x{v}xf32> loc("head")
    %c = zorse.cross_entropy %l, %ids : (tensor<?x{s}x{v}xf32>, tensor<?x{s}xi64>) -> tensor<?x{s}xf32> loc("loss")
    %z = zorse.reduce sum %c dims [1] : tensor<?x{s}xf32> -> tensor<?xf32> loc("loss")
    return %z : tensor<?xf32>
  }}
}}
"""


def rounding(folder):
    """PTX files of kernels that round to 16 bits, except attention kernels."""
    for path in sorted(glob.glob(os.path.join(folder, "*.ptx"))):
        with open(path[:-3] + "mlir") as f:
            if re.search(r"truncf .*f32.* to .*b?f16|ff2bf16x2|(addf|subf) .*xbf16>", f.read()) and "attention" not in path:
                yield path


def casts(folder, precision, arch):
    """The PTX of a small model's bundle, which contains the casts of its parameters."""
    cluster = os.path.join(folder, f"{arch}.yaml")
    with open(cluster, "w") as f:
        f.write(f"name: one\nnodes:\n  - name: here\n    devices:\n      - {{ name: a, type: {GPUS[arch]} }}\n")
    bundle = os.path.join(folder, f"{precision}-{arch}.zorse")
    z.call("zorse-compile", os.path.join(z.SMALL, "gpt.onnx"), "--cluster", cluster, "--global-batch-size", 8, "--seq-length", 32, "--precision", precision, "--quiet", "-o", bundle)
    return os.path.join(bundle, "kernels", arch, "kernels.ptx")


def shares(path, arch):
    folder, cubin, _ = toolchain.cubin_of(path, arch)
    try:
        kernels = listing.parse(toolchain.listing(cubin))
    finally:
        if folder:
            folder.cleanup()
    return {name: mix.integer_share(kernel) for name, kernel in kernels.items()}


def main():
    toolchain.skip_without_tools()
    quick, shows_all = "--quick" in sys.argv, "--all" in sys.argv
    problems, worst, count = [], {}, 0
    with tempfile.TemporaryDirectory() as folder:
        graph = os.path.join(folder, "block.mlir")
        with open(graph, "w") as f:
            f.write(GRAPH.format(s=1024, w=768, f=3072, v=50304))
        archs = ["sm_80"] if quick else list(GPUS)
        for precision in ["bf16"] if quick else ["bf16", "f16"]:
            dumps = os.path.join(folder, precision)
            z.call("zorse-opt", graph, f"--zorse-train-pipeline=round={precision}", *(f"--zorse-compile-functions=arch={arch} dump-dir={dumps}/{arch}" for arch in archs), "-o", os.devnull)
            for arch in archs:
                found = {}
                for path in rounding(os.path.join(dumps, arch)):
                    found.update(shares(path, arch))
                found.update({n: s for n, s in shares(casts(folder, precision, arch), arch).items() if n.startswith("cast_")})
                seen = set()
                for name, (share, executed) in sorted(found.items()):
                    kind = next((k for k, pattern in KINDS.items() if re.search(pattern, name)), None)
                    if kind:
                        seen.add(kind)
                        count += 1
                        worst[kind] = max(worst.get(kind, 0), share)
                        if share > MOST:
                            problems.append(f"{precision}, {arch}: {name}: {100 * share:.0f} % of {executed} instructions are integer, at most {100 * MOST:.0f} % expected")
                    if kind or shows_all:
                        print(f"{precision} {arch:6} {100 * share:3.0f} % of {executed:5}  {kind or '-':26} {name}", flush=True)
                if len(seen) < len(KINDS):
                    problems.append(f"{precision}, {arch}: expected kernels of every kind, found none of: {', '.join(sorted(set(KINDS) - seen))}")
    for line in problems:
        print("FAIL", line)
    if problems:
        sys.exit(1)
    print(f"{count} kernels, the largest share: " + ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in worst.items()) + f"; limit {100 * MOST:.0f} %")


if __name__ == "__main__":
    try:
        main()
    except (z.Failure, RuntimeError, ValueError) as problem:
        sys.exit(f"FAIL {problem}")
