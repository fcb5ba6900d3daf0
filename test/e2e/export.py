"""zorse-export: writes a snapshot as safetensors and as ONNX; the results are compared with --save-weights and the
original file. With ZORSE_PYTHON (onnx; onnxruntime or its reference evaluator) the ONNX files are checked and read
back; otherwise only their sizes are checked.
"""
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

import harness as z

CHECK = r'''
import sys, numpy as np, onnx
from onnx import numpy_helper
original, exported, checkpoint = sys.argv[1:4]
from safetensors.numpy import load_file
a, b, trained = onnx.load(original), onnx.load(exported), load_file(checkpoint)
onnx.checker.check_model(exported)
ours, theirs = {t.name: t for t in b.graph.initializer}, {t.name: t for t in a.graph.initializer}
assert [t.name for t in a.graph.initializer] == [t.name for t in b.graph.initializer if t.name in theirs], "initializers"
changed = 0
for name, t in ours.items():
    now = numpy_helper.to_array(t)
    if name not in theirs:
        merged = next(n for n in a.graph.node if n.op_type == "Identity" and n.output[0] == name)
        assert np.array_equal(now, trained[name]) and not any(n.output[0] == name for n in b.graph.node) and now.shape == trained[merged.input[0]].shape
        continue
    was = numpy_helper.to_array(theirs[name])
    assert t.data_type == theirs[name].data_type and list(t.dims) == list(theirs[name].dims), name
    if name in trained:
        assert np.array_equal(now, trained[name].astype(now.dtype)), name
        changed += not np.array_equal(now, was)
    else:
        tied = [n for n in trained if n in theirs and theirs[n].dims == theirs[name].dims[::-1] and np.array_equal(numpy_helper.to_array(theirs[n]).T, was)] if was.ndim == 2 else []
        assert np.array_equal(now, trained[tied[0]].T if tied else was), name
assert set(trained) <= set(ours), set(trained) - set(ours)
for x in (a, b):
    del x.graph.initializer[:]
    for node in [n for n in x.graph.node if n.op_type == "Identity" and n.output[0] in trained]:
        x.graph.node.remove(node)  # a parameter that the exporter had merged
assert a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True), "something else changed"
print(changed, "of", len(ours), "changed; external", any(t.data_location for t in onnx.load(exported, load_external_data=False).graph.initializer))
'''


MERGED = r'''
import sys, onnx
from onnx import helper, numpy_helper
m = onnx.load(sys.argv[1])
g = m.graph
initializers = {t.name: t for t in g.initializer}
# A tied matrix whose transpose the exporter has folded, and a parameter that it has merged into another of equal values.
transpose = next(n for n in g.node if n.op_type == "Transpose" and n.input[0] == "lm_head.weight")
g.initializer.append(numpy_helper.from_array(numpy_helper.to_array(initializers["lm_head.weight"]).T.copy(), transpose.output[0]))
g.node.remove(transpose)
g.initializer.remove(initializers["h.1.ln_1.bias"])
g.node.insert(0, helper.make_node("Identity", ["h.0.ln_1.bias"], ["h.1.ln_1.bias"]))
onnx.save(m, sys.argv[2])
'''


def external(python, model, path):
    """The same model with external data."""
    subprocess.run([python, "-c", f"import onnx; onnx.save(onnx.load({model!r}), {path!r}, save_as_external_data=True, location='w.bin', size_threshold=0)"], check=True)


def main():
    results = []
    python = os.environ.get("ZORSE_PYTHON", os.path.join(z.ROOT, ".venv", "bin", "python"))
    have = os.path.exists(python) and subprocess.run([python, "-c", "import onnx, safetensors"], capture_output=True).returncode == 0
    with tempfile.TemporaryDirectory() as folder:
        for name in ("gpt", "llama") if "--quick" in sys.argv else ("gpt", "llama", "gpt-bytes"):
            model = os.path.join(z.SMALL, name + ".onnx")
            data = os.path.join(z.SMALL, ("llama" if name == "llama" else "gpt") + ".tokens.bin")
            models = [("embedded", model)]
            if have:
                os.mkdir(os.path.join(folder, name + ".d"))
                models.append(("external", os.path.join(folder, name + ".d", "m.onnx")))
                external(python, model, models[1][1])
                if name == "gpt":
                    models.append(("merged", os.path.join(folder, "merged.onnx")))
                    subprocess.run([python, "-c", MERGED, model, models[2][1]], check=True)
            for kind, path in models:
                tag = os.path.join(folder, f"{name}-{kind}")
                z.compile(path, tag + ".zorse", z.cluster(folder, ["a", "b", "c"]), 6, 16)
                for mode in ("--in-process", "--spawn") if kind == "embedded" else ("--in-process",):
                    s = tag + mode
                    z.call("zorse-run", tag + ".zorse", "--data", data, "--max-steps", 3, "--checkpoint-dir", s, "--save-weights", tag + ".c", "--quiet", mode)
                    z.call("zorse-export", s, "-o", tag + ".e")
                    with open(tag + ".c", "rb") as c, open(tag + ".e", "rb") as e:
                        results.append(c.read() == e.read())
                    print(f"{'ok  ' if results[-1] else 'FAIL'} {name} {kind} {mode}: the exported safetensors file is the checkpoint", flush=True)
                os.rename(tag + ".zorse", tag + ".away")  # exporting needs no bundle
                z.call("zorse-export", tag + "--in-process", "--onnx", path, "-o", tag + ".onnx")
                if have:
                    done = subprocess.run([python, "-c", CHECK, path, tag + ".onnx", tag + ".c"], capture_output=True, text=True)
                    results.append(done.returncode == 0 and f"external {kind == 'external'}" in done.stdout)
                    print(f"{'ok  ' if results[-1] else 'FAIL'} {name} {kind}: ONNX with the trained weights: {(done.stdout + done.stderr).strip()[-500:]}", flush=True)
                else:
                    results.append(os.path.getsize(tag + ".onnx") > 1000)
                # The exported model can be trained further: its loss is that of the snapshot's parameters.
                z.compile(tag + ".onnx", tag + ".again", z.cluster(folder, ["a"]), 6, 16)
                z.compile(path, tag + ".first", z.cluster(folder, ["a"]), 6, 16)
                again = z.run(tag + ".again", data, 1)[0]["loss"]
                first = z.run(tag + ".first", data, 1, extra=("--load-weights", tag + ".c"))[0]["loss"]
                results.append(z.check(f"{name} {kind}: loss of the exported model", abs(again - first) / first, 1e-6))
        if not have:
            print("skipped: reading ONNX files back: no Python with onnx (tools/python-env.sh makes one, or name one in ZORSE_PYTHON)")

        def refused(what, words, *says):
            code, _, err = z.call("zorse-export", *words, ok=False)
            results.append(code == 1 and all(s in err for s in says))
            print(f"{'ok  ' if results[-1] else 'FAIL'} {what}: {err.strip()}", flush=True)

        s, out = os.path.join(folder, "gpt-embedded--in-process"), os.path.join(folder, "out")
        snapshot = os.path.join(s, next(n for n in os.listdir(s) if n.startswith("step-")))
        refused("no snapshots", [folder, "-o", out], "no complete checkpoint")
        refused("no directory", [os.path.join(folder, "none"), "-o", out], "not a directory of checkpoints")
        refused("no output", [s], "expected -o")
        refused("another model", [s, "--onnx", os.path.join(z.SMALL, "llama.onnx"), "-o", out], "is not the model", "no initializer")
        refused("no ONNX file", [s, "--onnx", os.path.join(z.SMALL, "gpt.tokens.bin"), "-o", out], "gpt.tokens.bin")
        refused("cannot be written", [s, "-o", os.path.join(folder, "none", "out")], "cannot be written")
        copy = os.path.join(folder, "copy.onnx")
        shutil.copy(os.path.join(z.SMALL, "gpt.onnx"), copy)
        refused("the original itself", [s, "--onnx", copy, "-o", copy], "is the same file as --onnx")
        victim = next(os.path.join(snapshot, n) for n in sorted(os.listdir(snapshot)) if n.endswith(".safetensors"))
        with open(victim, "r+b") as f:
            f.seek(6000)
            byte = f.read(1)
            f.seek(6000)
            f.write(bytes([byte[0] ^ 4]))
        for words in ([snapshot, "-o", out], [snapshot, "--onnx", copy, "-o", out]):
            refused("a damaged snapshot", words, os.path.basename(victim), "checksum")
        results.append(not os.path.exists(out))
    z.finish(results)


if __name__ == "__main__":
    main()
