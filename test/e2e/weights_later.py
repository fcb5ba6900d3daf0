"""A model with missing weight files is planned and compiled anyway, and trains as usual once they exist.

    weights_later.py
"""
import os
import shutil
import tempfile

import harness as z


def main():
    results = []

    def expect(what, good, found=""):
        results.append(good)
        print(f"{'ok  ' if good else 'FAIL'} {what}{'' if good else ': ' + str(found)[-500:]}", flush=True)

    data = os.path.join(z.SMALL, "gpt.tokens.bin")
    with tempfile.TemporaryDirectory() as folder:
        cluster = z.cluster(folder, [("a", 2e10), ("b", 1e10)])
        model, bundle = os.path.join(folder, "gpt-fixed-1.onnx"), os.path.join(folder, "gpt.zorse")
        shutil.copy(os.path.join(z.SMALL, "gpt-fixed-1.onnx"), model)  # its weights are in gpt.onnx.data

        code, _, text = z.compile(model, bundle, cluster, 8, 32, ok=False)
        expect("without --weights=defer a missing file is an error that names it", code == 1 and "gpt.onnx.data" in text, text)
        code, out, text = z.call("zorse-plan", model, "--seq-length", 32, "--global-batch-size", 8, "--cluster", cluster, "-o", os.path.join(folder, "plan.json"), ok=False)
        expect("zorse-plan asks for no weights", code == 0 and "predicted step" in out, text)
        code, _, text = z.compile(model, bundle, cluster, 8, 32, os.path.join(folder, "plan.json"), ok=False, extra=["--weights=defer"])
        expect("zorse-compile --weights=defer needs none", code == 0, text)
        code, _, text = z.call("zorse-run", bundle, "--data", data, "--max-steps", 1, ok=False)
        expect("zorse-run names the missing file", code == 1 and "gpt.onnx.data" in text, text)

        shutil.copy(os.path.join(z.SMALL, "gpt.onnx.data"), folder)
        losses = [m["loss"] for m in z.run(bundle, data, 3)]
        other = os.path.join(folder, "whole.zorse")
        z.compile(model, other, cluster, 8, 32, os.path.join(folder, "plan.json"))
        expect("with the file next to the model training is bit-identical", losses == [m["loss"] for m in z.run(other, data, 3)], losses)

        # The trained parameters are in the snapshots: evaluating and resuming do not need the model's files.
        snapshots, held = os.path.join(folder, "snapshots"), data
        z.call("zorse-run", bundle, "--data", data, "--max-steps", 2, "--checkpoint-dir", snapshots)
        init = os.path.join(folder, "init.safetensors")
        z.call("zorse-run", bundle, "--data", data, "--max-steps", 1, "--lr", 0, "--save-weights", init)
        evaluate = ("zorse-run", bundle, "--eval-only", "--eval-data", held, "--eval-iters", 2, "--checkpoint-dir", snapshots)
        line = lambda *words: [x for x in z.call(*words, ok=False)[1].splitlines() if x.startswith("evaluation: ")]
        with_files = line(*evaluate)
        whole = os.path.join(folder, "gpt.onnx.data")
        os.rename(whole, whole + ".away")
        expect("a snapshot is evaluated without the model's files", with_files and line(*evaluate) == with_files, (with_files, z.call(*evaluate, ok=False)))
        expect("and also with --load-weights, with its trained parameters ignored", line(*evaluate, "--load-weights", init) == with_files, z.call(*evaluate, "--load-weights", init, ok=False))
        code, out, text = z.call("zorse-run", bundle, "--data", data, "--max-steps", 3, "--checkpoint-dir", snapshots, "--resume", ok=False)
        expect("a run continues without them", code == 0 and "resumed after step 2" in out, text)
        code, _, text = z.call("zorse-run", bundle, "--eval-only", "--eval-data", held, ok=False)
        expect("without a snapshot the message names the existing files", code == 1 and "--load-weights" in text and "gpt.onnx.data" in text, text)
        os.rename(whole + ".away", whole)

        # A constant that determines the graph must be present.
        with open(os.path.join(folder, "gpt.onnx.data"), "r+b") as f:
            f.truncate(16)
        code, _, text = z.compile(model, bundle, cluster, 8, 32, ok=False, extra=["--weights=defer"])
        expect("a file that is there and too short is still an error", code == 1 and "truncated" in text, text)
    z.finish(results)


if __name__ == "__main__":
    main()
