"""`python -m zorse.data` converts text and JSON lines to shards, once, with document boundaries and loss masks; a model
trains on them.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "python"))
results = []


def holds(name, good, found=""):
    print(f"{'ok  ' if good else 'FAIL'} {name}" + ("" if good else f": {found}"), flush=True)
    results.append(bool(good))


def call(folder, *words):
    done = subprocess.run([sys.executable, "-m", "zorse.data", *map(str, words)], cwd=folder, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.path.join(z.ROOT, "python")))
    return done.returncode, done.stdout, done.stderr


def refused(folder, name, text, *words):
    code, _, err = call(folder, *words)
    holds(f"refused: {name}", code == 1 and text in err and err.startswith("error: ") and err.count("\n") == 1, err)


def rows(folder, name):
    parts = sorted(f for f in os.listdir(os.path.join(folder, name)) if f.endswith(".npy"))
    load = lambda kind: np.concatenate([np.load(os.path.join(folder, name, f)) for f in parts if f.startswith(kind)])
    return load("ids"), load("labels")



def main():
    with tempfile.TemporaryDirectory() as folder:
        pairs = [("ask: ", "yes"), ("tell me: ", "no, not now"), ("x", "a rather long answer")]
        with open(os.path.join(folder, "a.jsonl"), "w") as f:
            f.writelines(json.dumps({"prompt": p, "completion": c, "text": p + c}) + "\n" for p, c in pairs)
        with open(os.path.join(folder, "t.txt"), "w") as f:
            f.write("".join(f"document {i} of the corpus, which says little. " * (1 + i % 3) + "\n\n" for i in range(90)))

        code, out, err = call(folder, "t.txt", "-o", "stream", "--separator", "\n\n", "--eod-token", 0, "--shard-tokens", 3000)
        shards = sorted(f for f in os.listdir(os.path.join(folder, "stream")) if f.endswith(".bin"))
        tokens = np.concatenate([np.fromfile(os.path.join(folder, "stream", f), np.uint16)[512:] for f in shards]) if code == 0 else np.empty(0)
        text = open(os.path.join(folder, "t.txt"), "rb").read()
        holds("a stream holds the documents, an end token behind each", code == 0 and bytes(tokens.astype(np.uint8)) == b"".join(p + b"\0" for p in text.split(b"\n\n") if p) and len(shards) > 2, err or shards)
        _, say, _ = call(folder, "--print-args", "stream")
        holds("the ids of a prompt", call(folder, "--encode", "Who ")[1].strip() == "87,104,111,32")
        holds("what --data is given", say.strip() == "stream/tokens-*.bin", say)
        before = os.stat(os.path.join(folder, "stream", shards[0])).st_mtime_ns
        again = call(folder, "t.txt", "-o", "stream", "--separator", "\n\n", "--eod-token", 0, "--shard-tokens", 3000)
        holds("once: the same again does nothing", again[0] == 0 and again[1] == out and os.stat(os.path.join(folder, "stream", shards[0])).st_mtime_ns == before)
        os.mkdir(os.path.join(folder, "again.preparing.0123456789abcdef"))  # left by a killed process
        code, _, err = call(folder, "t.txt", "-o", "again")
        holds("files of a killed run are removed", code == 0 and [n for n in os.listdir(folder) if n.startswith("again")] == ["again"], err or os.listdir(folder))
        refused(folder, "other options into the same folder", "contains data prepared from other files or with other options", "t.txt", "-o", "stream")

        code, out, err = call(folder, "a.jsonl", "-o", "masked", "--prompt-field", "prompt", "--completion-field", "completion", "--seq-length", 16, "--eod-token", 0)
        ids, labels = rows(folder, "masked")
        good = code == 0
        row = 0
        for p, c in pairs:  # every document begins a row; labels are the next tokens of the completion
            document = list((p + c).encode()) + [0]
            learnt = [False] * len(p.encode()) + [True] * (len(c.encode()) + 1)
            for begin in range(0, len(document) - 1, 16):
                part = document[begin:begin + 17]
                wanted = [document[i + 1] if i + 1 < len(document) and learnt[i + 1] else -100 for i in range(begin, begin + 16)]
                if all(w == -100 for w in wanted):
                    continue
                good = good and list(ids[row][:len(part[:16])]) == part[:16] and list(labels[row]) == wanted
                row += 1
        holds("prompts and padding are masked, completions are learned", good and row == len(ids), (ids, labels, err))
        code, _, err = call(folder, "a.jsonl", "-o", "same", "--prompt-field", "prompt", "--completion-field", "completion", "--seq-length", 16, "--eod-token", 0, "--labels", "same")
        ids2, labels2 = rows(folder, "same")
        holds("labels that the model shifts are at their own tokens", code == 0 and all(l in (-100, i) for i, l in zip(ids2.ravel(), labels2.ravel())) and (labels2 != -100).any(), err)
        code, _, err = call(folder, "a.jsonl", "-o", "packed", "--packing", "rows", "--seq-length", 8, "--eod-token", 0)
        ids3, labels3 = rows(folder, "packed")
        flat, stream = labels3.ravel(), np.concatenate([np.frombuffer((p + c).encode() + b"\0", np.uint8) for p, c in pairs])
        starts = np.cumsum([len((p + c).encode()) + 1 for p, c in pairs])[:-1]
        holds("packed rows mask predictions across documents", code == 0 and list(ids3.ravel()[:len(stream)]) == list(stream) and all(flat[s - 1] == -100 for s in starts)
              and (flat[:len(stream) - 1] == -100).sum() == len(starts), (ids3, labels3, err))

        refused(folder, "no such field", "a.jsonl:1: expected text in the field 'body', found the fields 'prompt', 'completion', 'text'", "a.jsonl", "-o", "n", "--text-field", "body")
        with open(os.path.join(folder, "bad.jsonl"), "w") as f:
            f.write('{"text": "a"}\nnonsense\n')
        refused(folder, "no JSON", "bad.jsonl:2: expected a JSON object per line", "bad.jsonl", "-o", "n")
        with open(os.path.join(folder, "latin.txt"), "wb") as f:
            f.write(b"caf\xe9")
        refused(folder, "another encoding", "expected text in UTF-8: byte 3 is invalid", "latin.txt", "-o", "n")
        refused(folder, "no files", "expected files of text or JSON lines, found none", "none-*.txt", "-o", "n")
        refused(folder, "rows without a length", "--seq-length: expected at least 2 tokens per row", "a.jsonl", "-o", "n", "--packing", "rows")
        refused(folder, "masks in a stream", "a stream of tokens cannot mask prompts", "a.jsonl", "-o", "n", "--packing", "stream", "--prompt-field", "prompt", "--completion-field", "completion")
        refused(folder, "no tokenizer", "expected bytes, a tokenizer.json or a directory", "a.jsonl", "-o", "n", "--tokenizer", "nowhere")
        refused(folder, "a folder of something else", "expected an empty or new folder, found other files in it", "a.jsonl", "-o", ".")
        refused(folder, "no data of ours", "expected a folder that python -m zorse.data has written", "--print-args", ".")
        holds("a failed run leaves no files", not [n for n in os.listdir(folder) if "preparing" in n or n == "n"], os.listdir(folder))

        # With a tokenizer, if the package is installed.
        try:
            from tokenizers import Tokenizer, models, pre_tokenizers
            words = {w: i for i, w in enumerate(["[UNK]", "</s>", "a", "b", "c"])}
            tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
            tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
            tokenizer.save(os.path.join(folder, "tokenizer.json"))
            with open(os.path.join(folder, "w.txt"), "w") as f:
                f.write("a b c a")
            code, out, err = call(folder, "w.txt", "-o", "words", "--tokenizer", "tokenizer.json")
            found = np.fromfile(os.path.join(folder, "words", "tokens-00000.bin"), np.uint16)[512:] if code == 0 else []
            holds("a tokenizer's ids and its end token", list(found) == [2, 3, 4, 2, 1], err)
        except ImportError:
            code, _, err = call(folder, "t.txt", "-o", "words", "--tokenizer", os.path.join(folder, "t.txt"))
            holds("the package tokenizers is asked for by name", code == 1 and "needs the Python package tokenizers (pip install tokenizers)" in err, err)
            print("skipped: tokenizers is not installed; bytes were tokens here", flush=True)

        # A model trains on both formats.
        bundle = os.path.join(folder, "m.zorse")
        z.compile(os.path.join(z.SMALL, "gpt-bytes.onnx"), bundle, z.cluster(folder, ["a"]), 2, 16, training={})
        trained = z.run(bundle, os.path.join(folder, "stream", "tokens-*.bin"), 3)
        holds("a model trains on a stream", len(trained) == 3 and all(np.isfinite(m["loss"]) for m in trained), trained)
        trained = z.run(bundle, f"input_ids={folder}/masked/ids-*.npy,labels={folder}/masked/labels-*.npy", 2)
        holds("and on rows with masks", len(trained) == 2 and all(np.isfinite(m["loss"]) for m in trained), trained)
        code, _, err = z.call("zorse-run", bundle, "--data", f"input_ids={folder}/same/ids-*.npy,labels={folder}/same/labels-*.npy", "--max-steps", 2, ok=False)
        holds("labels for models that shift them are refused by one that does not", code == 1 and "data.json" in err and "--labels next" in err, err)
        shifting = os.path.join(folder, "llama.zorse")
        z.compile(os.path.join(z.SMALL, "llama.onnx"), shifting, z.cluster(folder, ["a"]), 2, 16, training={})
        words = lambda form: ("zorse-run", shifting, "--data", f"input_ids={folder}/{form}/ids-*.npy,labels={folder}/{form}/labels-*.npy", "--max-steps", 2)
        code, _, err = z.call(*words("masked"), ok=False)
        holds("shifted labels are refused by a model that shifts them", code == 1 and "data.json" in err and "--labels same" in err, err)
        holds("and unshifted labels are accepted", z.call(*words("same"), ok=False)[0] == 0)
        # Token ids outside of the vocabulary are refused; for JSON lines, the error names the command that converts
        # them.
        code, _, err = z.call("zorse-run", bundle, "--data", os.path.join(folder, "a.jsonl"), "--max-steps", 2, ok=False)
        holds("lines of JSON name python3 -m zorse.data", code == 1 and f"python3 -m zorse.data {folder}/a.jsonl" in err, err)
        ids = np.fromfile(os.path.join(folder, "stream", "tokens-00000.bin"), np.uint16)[512:]
        losses = {}
        for kind in (np.uint16, np.uint32, np.int64):
            ids.astype(kind).tofile(os.path.join(folder, f"{kind.__name__}.bin"))
            losses[kind.__name__] = [m["loss"] for m in z.run(bundle, os.path.join(folder, f"{kind.__name__}.bin"), 3)]
        holds("a file without a header is read by its contents", losses["uint16"] == losses["uint32"] == losses["int64"], losses)
        np.zeros(4000, np.uint16).tofile(os.path.join(folder, "zeros.bin"))
        code, _, err = z.call("zorse-run", bundle, "--data", os.path.join(folder, "zeros.bin"), "--max-steps", 2, ok=False)
        holds("or its type is asked for", code == 1 and "--data-type" in err, err)
        holds("and reported", len(z.run(bundle, os.path.join(folder, "zeros.bin"), 2, extra=("--data-type", "uint32"))) == 2)
    z.finish(results)


if __name__ == "__main__":
    main()
