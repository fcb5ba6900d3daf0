"""Predicts which share of peak FLOP/s the tensor-core attention kernels reach, for small bf16 models with head sizes 64
and 128. The prediction is the loop model of test/benchmark/sass.

    attention_share.py [--quick]      --quick: only sm_80

Compiles the model for each architecture, assembles the kernels attention_forward..., attention_query_gradients... and
attention_key_gradients..., and compares the share of the dense peak with the claimed minimum: for the forward, and for
the backward with 5 matmuls counted of the 7 that the two kernels compute. Fails if a kernel spills or if no kernel is
found. Exit code 77 without ptxas (tools/ptxas.sh) or nvdisasm (tools/nvdisasm.sh).
"""
import os
import re
import sys
import tempfile

import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "test", "benchmark", "sass"))
import model as sass  # noqa: E402
import toolchain  # noqa: E402

# Minimum shares: forward of both head sizes, backward of head size 64 and of 128. For sm_90 relative to the peak of
# mma.sync, for others to the vendor's dense peak.
LEAST = {"sm_80": (0.65, {64: 0.49, 128: 0.42}), "sm_89": (0.85, {64: 0.67, 128: 0.62}), "sm_90": (0.50, {64: 0.42, 128: 0.37})}
QUERY_PRODUCTS, KEY_PRODUCTS, COUNTED = 3, 4, 5

GRAPH = """module {{
  func.func @model(%ids: tensor<?x{s}xi64> {{zorse.input = "input_ids"}} loc("input_ids"),
      %table: tensor<512x{w}xf32> {{zorse.parameter = "table", zorse.trainable = true}} loc("table"),
      %q: tensor<{w}x{w}xf32> {{zorse.parameter = "q", zorse.trainable = true}} loc("q"),
      %k: tensor<{w}x{w}xf32> {{zorse.parameter = "k", zorse.trainable = true}} loc("k"),
      %v: tensor<{w}x{w}xf32> {{zorse.parameter = "v", zorse.trainable = true}} loc("v"),
      %o: tensor<512x{w}xf32> {{zorse.parameter = "o", zorse.trainable = true}} loc("o"))
      -> (tensor<?xf32> {{zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/({s}*B)"}}) {{
    %x = zorse.gather %table, %ids : tensor<512x{w}xf32>, tensor<?x{s}xi64> -> tensor<?x{s}x{w}xf32> loc("embed")
    %0 = zorse.matmul %x, %q {{transpose_b}} : tensor<?x{s}x{w}xf32>, tensor<{w}x{w}xf32> -> tensor<?x{s}x{w}xf32> loc("attn.q")
    %1 = zorse.matmul %x, %k {{transpose_b}} : tensor<?x{s}x{w}xf32>, tensor<{w}x{w}xf32> -> tensor<?x{s}x{w}xf32> loc("attn.k")
    %2 = zorse.matmul %x, %v {{transpose_b}} : tensor<?x{s}x{w}xf32>, tensor<{w}x{w}xf32> -> tensor<?x{s}x{w}xf32> loc("attn.v")
    %3 = zorse.reshape %0 : tensor<?x{s}x{w}xf32> -> tensor<?x{s}x{h}x{d}xf32>
    %4 = zorse.reshape %1 : tensor<?x{s}x{w}xf32> -> tensor<?x{s}x{h}x{d}xf32>
    %5 = zorse.reshape %2 : tensor<?x{s}x{w}xf32> -> tensor<?x{s}x{h}x{d}xf32>
    %6 = zorse.attention %3, %4, %5 {{causal, scale = 0.1 : f64}} : (tensor<?x{s}x{h}x{d}xf32>, tensor<?x{s}x{h}x{d}xf32>, tensor<?x{s}x{h}x{d}xf32>) -> tensor<?x{s}x{h}x{d}xf32> loc("attn")
    %7 = zorse.reshape %6 : tensor<?x{s}x{h}x{d}xf32> -> tensor<?x{s}x{w}xf32>
    %8 = zorse.matmul %7, %o {{transpose_b}} : tensor<?x{s}x{w}xf32>, tensor<512x{w}xf32> -> tensor<?x{s}x512xf32> loc("head")
    %9 = zorse.cross_entropy %8, %ids : (tensor<?x{s}x512xf32>, tensor<?x{s}xi64>) -> tensor<?x{s}xf32> loc("loss")
    %10 = zorse.reduce sum %9 dims [1] : tensor<?x{s}xf32> -> tensor<?xf32> loc("loss")
    return %10 : tensor<?xf32>
  }}
}}
"""


def launches(folder):
    """{symbol: (threads per block, dynamic shared memory in bytes)} of the kernels in a folder of dumps."""
    with open(os.path.join(folder, "functions.txt")) as f:
        text = f.read()
    found = {}
    for part in text.split("kernel {")[1:]:
        kernel = part.split("origin:")[0]
        symbol = re.search(r'symbol: "(\w+)"', kernel)
        threads = re.search(r"^\s*threads: (\d+)", kernel, re.M)
        shared = re.search(r"^\s*\w*shared\w*: (\d+)", kernel, re.M)
        if symbol and threads:
            found[symbol.group(1)] = int(threads.group(1)), int(shared.group(1)) if shared else 0
    return found


def shares(folder, arch, prefix):
    """Loop models of all attention kernels with this name."""
    results = []
    for symbol, (threads, shared) in sorted(launches(folder).items()):
        if symbol.startswith(prefix):
            results += sass.model_file(os.path.join(folder, symbol + ".ptx"), arch, symbol, threads, shared)
    return results


def main():
    toolchain.skip_without_tools()
    problems, least = [], []
    chips = ["sm_80"] if "--quick" in sys.argv else list(LEAST)
    with tempfile.TemporaryDirectory() as folder:
        for head in (64, 128):
            graph = os.path.join(folder, f"attention-{head}.mlir")
            with open(graph, "w") as f:
                f.write(GRAPH.format(s=1024, w=4 * head, h=4, d=head))
            dumps = os.path.join(folder, str(head))
            z.call("zorse-opt", graph, "--zorse-train-pipeline=round=bf16", *(f"--zorse-compile-functions=arch={chip} dump-dir={dumps}/{chip}" for chip in chips))
            for chip in chips:
                found = {kind: shares(os.path.join(dumps, chip), chip, "attention_" + kind) for kind in ("forward", "query_gradients", "key_gradients")}
                lacking = [kind for kind, kernels in found.items() if not kernels]
                if lacking:
                    problems.append(f"{chip}, head size {head}: expected kernels called " + ", ".join("attention_" + k for k in lacking) + ", found none")
                    continue
                for kernels in found.values():
                    for r in kernels:
                        sass.show(r)
                        if r.spilled:
                            problems.append(f"{chip}, head size {head}: {r.kernel} spills {r.spilled} bytes")
                worst = {kind: min(r.share for r in kernels) for kind, kernels in found.items()}
                backward = COUNTED / (QUERY_PRODUCTS / worst["query_gradients"] + KEY_PRODUCTS / worst["key_gradients"]) if worst["query_gradients"] and worst["key_gradients"] else 0
                wanted_forward, wanted_backward = LEAST[chip][0], LEAST[chip][1][head]
                print(f"{chip}, head size {head}: forward {worst['forward']:.3f} (at least {wanted_forward}), backward {backward:.3f} (at least {wanted_backward})", flush=True)
                least.append(f"{chip} {head}: {worst['forward']:.2f} and {backward:.2f}")
                if worst["forward"] < wanted_forward:
                    problems.append(f"{chip}, head size {head}: forward reaches {worst['forward']:.3f}, expected {wanted_forward}")
                if backward < wanted_backward:
                    problems.append(f"{chip}, head size {head}: backward reaches {backward:.3f}, expected {wanted_backward}")
    for line in problems:
        print("FAIL", line)
    if problems:
        sys.exit(1)
    print("shares of the dense peak by the model of the loops, forward and backward: " + "; ".join(least) + "; nothing spills")


if __name__ == "__main__":
    try:
        main()
    except (z.Failure, RuntimeError, ValueError) as problem:
        sys.exit(f"FAIL {problem}")
