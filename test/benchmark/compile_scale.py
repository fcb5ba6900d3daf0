"""Growth of compilation with layers and devices: Llama without weights, planned and compiled for parts of a cluster of
128 A100-40 and 384 V100-16.

    compile_scale.py [--quick] [--seconds 3.5] [--verify 0.5] [--mebibytes 600] [--repeat 3]

Prints a line per compilation: layers, devices, seconds by phase, memory, bytes of the bundle. Fails if the fastest
repetition of the largest compilation exceeds the limits, or if weights were read (the model has none). Each model is
exported once, to out/.
"""
import argparse
import os
import re
import resource
import shutil
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN = os.environ.get("ZORSE_BIN", os.path.join(ROOT, "build", "release", "bin"))
SHAPE = {"hidden_size": 8192, "intermediate_size": 22016, "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 49152, "max_position_embeddings": 4096}


def export(layers):
    path = os.path.join(ROOT, "out", f"llama-{layers}-layers.onnx")
    if not os.path.exists(path):
        print(f"exporting {layers} layers (once) ...", flush=True)
        words = [sys.executable, os.path.join(ROOT, "models", "export.py"), "--hf", "LlamaConfig", "--no-weights", "--sequence", "64", "-o", path, "--set", f"num_hidden_layers={layers}"]
        done = subprocess.run(words + [f"{k}={v}" for k, v in SHAPE.items()], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"FAIL the export: {done.stderr[-2000:]}")
    return path


def cluster(devices):
    """A quarter A100, the rest V100, in nodes of four."""
    path = os.path.join(ROOT, "out", f"cluster-{devices}.yaml")
    with open(path, "w") as f:
        f.write(f"""name: {devices} devices
nodes:
  - {{name: a, count: {max(1, devices // 16)}, devices: [{{name: a100, type: A100-40, count: 4}}]}}
  - {{name: v, count: {max(1, devices // 4 - devices // 16)}, devices: [{{name: v100, type: V100-32, count: 4}}]}}
links:
  inter_node: {{bandwidth: 100 Gbit/s, latency: 30 us}}
""")
    return path


def size(folder):
    return sum(os.path.getsize(os.path.join(base, name)) for base, _, names in os.walk(folder) for name in names)


def compile(layers, devices, batch, sequence):
    bundle = os.path.join(ROOT, "out", "scale.zorse")
    shutil.rmtree(bundle, ignore_errors=True)
    words = [os.path.join(BIN, "zorse-compile"), export(layers), "--weights=defer", "--simulate-only", "--seq-length", str(sequence), "--global-batch-size", str(batch), "--cluster", cluster(devices), "-o", bundle]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    text = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"FAIL {layers} layers, {devices} devices: {text[-2000:]}")
    phases = dict((m.group(1), float(m.group(2))) for m in re.finditer(r"^  (\w+)\s+([\d.]+) s  ", text, re.M))
    total = float(re.search(r"([\d.]+) s  in all", text).group(1))
    programs = size(os.path.join(bundle, "programs"))
    print(f"{layers:3d} layers {devices:4d} devices {total:7.2f} s  {usage.ru_maxrss / 1024:6.0f} MiB  bundle {size(bundle) / 2**20:7.2f} MiB, programs {programs / 2**20:7.2f} MiB  "
          + " ".join(f"{k} {v:.2f}" for k, v in phases.items()), flush=True)
    return total, phases["verify"], usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.5)
    parser.add_argument("--verify", type=float, default=0.5)
    parser.add_argument("--mebibytes", type=float, default=600)
    parser.add_argument("--repeat", type=int, default=3)
    a = parser.parse_args()
    os.makedirs(os.path.join(ROOT, "out"), exist_ok=True)
    for layers, devices in ((10, 8), (10, 64)) if a.quick else ((10, 8), (10, 64), (10, 256), (20, 256), (40, 256), (80, 256)):
        compile(layers, devices, 512, 512)
    runs = [compile(80, 512, 512, 512) for _ in range(a.repeat)]
    seconds, verify, mebibytes = min(r[0] for r in runs), min(r[1] for r in runs), max(r[2] for r in runs)
    good = seconds <= a.seconds and verify <= a.verify and mebibytes <= a.mebibytes
    print(f"{'ok' if good else 'FAIL'}: 80 layers (65B) on 512 devices in {seconds:.1f} s (limit {a.seconds:g}), of which verification {verify:.2f} s (limit {a.verify:g}), and {mebibytes:.0f} MiB (limit {a.mebibytes:g}), without weights")
    sys.exit(not good)


if __name__ == "__main__":
    main()
