"""Data: the same token stream gives the same losses in every format; order, shuffling and epochs do not depend on the
plan; evaluation and checkpoints.
"""
import os
import struct
import tempfile

import numpy as np

import harness as z

GPT, TOKENS = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.tokens.bin")
BATCH, LENGTH = 8, 32


def main():
    results = []

    def same(name, a, b):
        good = a == b and len(a) > 0
        print(f"{'ok  ' if good else 'FAIL'} {name}")
        results.append(good)

    with tempfile.TemporaryDirectory() as folder:
        one = os.path.join(folder, "one.zorse")
        z.compile(GPT, one, z.cluster(folder, ["a"]), BATCH, LENGTH)
        three = os.path.join(folder, "three.zorse")
        plan = z.plan(folder, "three", BATCH, "abc", [(0, 3, 0, 8, "a"), (3, 8, 0, 3, "b"), (3, 8, 3, 8, "c")])
        z.compile(GPT, three, z.cluster(folder, "abc"), BATCH, LENGTH, plan)
        ids = np.fromfile(TOKENS, np.uint16)[:5 * BATCH * LENGTH + 1]
        files = {k: os.path.join(folder, k) for k in ("raw.bin", "llmc.bin", "bytes.txt", "ids.npy", "labels.npy")}
        ids.tofile(files["raw.bin"])
        with open(files["llmc.bin"], "wb") as f:
            header = np.zeros(256, np.int32)
            header[:3] = 20240520, 1, len(ids)
            f.write(header.tobytes() + ids.tobytes())
        ids.astype(np.uint8).tofile(files["bytes.txt"])
        np.save(files["ids.npy"], ids[:-1].astype(np.int64).reshape(-1, LENGTH))
        np.save(files["labels.npy"], ids[1:].astype(np.int64).reshape(-1, LENGTH))
        losses = lambda bundle, data, steps=5, *extra: [m["loss"] for m in z.run(bundle, data, steps, extra=extra)]
        raw = losses(one, files["raw.bin"])
        same("llm.c header", losses(one, files["llmc.bin"]), raw)
        same("text as bytes", losses(one, files["bytes.txt"]), raw)
        same("one .npy per input", losses(one, f"input_ids={files['ids.npy']},labels={files['labels.npy']}"), raw)
        shuffled = losses(one, files["raw.bin"], 12, "--shuffle-seed=3")
        results.append(z.check("shuffled, beyond one epoch, another plan", z.relative(losses(three, files["raw.bin"], 12, "--shuffle-seed=3"), shuffled), 1e-5))
        same("same seed, same order", losses(one, files["raw.bin"], 12, "--shuffle-seed=3"), shuffled)
        same("another seed, another order", [losses(one, files["raw.bin"], 3, "--shuffle-seed=4") != shuffled[:3]], [True])
        checkpoint = os.path.join(folder, "c.safetensors")
        z.run(one, files["raw.bin"], 5, checkpoint=checkpoint)
        held = [z.run(b, files["raw.bin"], 1, extra=("--load-weights", checkpoint, "--lr", "0"))[0]["loss"] for b in (one, three)]
        results.append(z.check("a checkpoint loads under another plan", z.relative([held[1]], [held[0]]), 1e-5))
        results.append(z.check("and continues below the first loss", held[0], raw[0]))
        _, out, _ = z.call("zorse-run", three, "--data", files["raw.bin"], "--max-steps", 4, "--eval-data", files["raw.bin"])
        same("evaluation is printed", ["eval" in out.lower()], [True])
    z.finish(results)


if __name__ == "__main__":
    main()
