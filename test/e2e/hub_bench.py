"""Test bench of hub.py: tiny random models of transformers in the layout of the hub, Zorse's tools, and PyTorch's own
training. Needs PyTorch and transformers: if the running Python does not have them, it is replaced by the one of
tools/python-env.sh.
"""
import importlib.util
import json
import os
import subprocess
import sys
import warnings

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.abspath(os.path.join(here, "..", ".."))
if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
    python = os.environ.get("ZORSE_PYTHON", os.path.join(root, ".venv", "bin", "python"))
    if os.path.exists(python) and os.path.abspath(sys.executable) != os.path.abspath(python) and \
            subprocess.run([python, "-c", "import torch, transformers, onnx"], capture_output=True).returncode == 0:
        os.execv(python, [python, *sys.argv])
    print("skipped: no Python with PyTorch and transformers (tools/python-env.sh makes one, or name one in ZORSE_PYTHON)")
    sys.exit(77)

warnings.filterwarnings("ignore")
os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != here] + [here]  # after Python's standard modules: one file here is named profile
import logging

logging.disable(logging.WARNING)
import numpy as np
import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig
from transformers.utils import logging as transformers_logging

import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "models"))

transformers_logging.disable_progress_bar()
LENGTH, BATCH, STEPS, VOCABULARY = 16, 4, 2, 96
ADAMW = {"optimizer": "adamw", "lr": "1e-3", "betas": "0.9,0.95", "eps": "1e-5", "weight-decay": "0.1", "weight-decay-params": "all", "max-grad-norm": "1.0"}
CONFIGS = {
    "llama": lambda: LlamaConfig(num_hidden_layers=2, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
                                 max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2),
    "gpt2": lambda: GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=VOCABULARY, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=1, eos_token_id=2),
}
TARGETS = {"llama": ["q_proj", "v_proj"], "gpt2": ["c_attn"]}
BASE = {"llama": "model", "gpt2": "transformer"}


class Bench:
    def __init__(self, folder):
        self.folder, self.results = folder, []
        rng = np.random.default_rng(0)
        self.ids = rng.integers(0, VOCABULARY, (BATCH * STEPS, LENGTH))
        np.save(self.at("ids.npy"), self.ids)
        self.data = f"input_ids={self.at('ids.npy')},labels={self.at('ids.npy')}"
        self.cluster = z.cluster(folder, ["a", "b"])

    def at(self, *names):
        return os.path.join(self.folder, *names)

    def expect(self, what, good, said=""):
        self.results.append(bool(good))
        print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good and not said else f": {said}"), flush=True)

    def figure(self, what, value, limit):
        self.results.append(z.check(what, value, limit))

    def refused(self, what, words, *says):
        """A tool exits with 1 and names the error."""
        code, out, err = z.call(*words, ok=False)
        lines = [line for line in err.splitlines() if "error:" in line]
        self.expect(f"refused: {what}", code == 1 and lines and all(s in lines[0] for s in says), (lines or [out + err])[0][:600])

    def hub(self, name, kind, seed=0, shards=True, dtype=torch.float32, **more):
        """A directory of the hub with a random model, its tokenizer and its license."""
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(CONFIGS[kind](), dtype=torch.float32)
        with torch.no_grad():  # no two parameters are equal, and none is constant
            for p in model.parameters():
                p.add_(torch.randn_like(p) * 0.05)
        model = model.to(dtype)
        model.save_pretrained(self.at(name), **({"max_shard_size": "16KB"} if shards else {}), **more)
        for companion, text in (("tokenizer.json", "{}"), ("merges.txt", "#version\n"), ("LICENSE", "free\n"), ("notes.bin", "no companion")):
            with open(self.at(name, companion), "w") as f:
                f.write(text)
        return self.at(name)

    def export(self, *words):
        done = subprocess.run([sys.executable, os.path.join(z.ROOT, "models", "export.py"), *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            raise z.Failure(done.stdout[-2000:] + done.stderr[-3000:])
        return words[-1]

    def compile(self, model, bundle, *extra, training=ADAMW):
        z.compile(model, self.at(bundle), self.cluster, BATCH, LENGTH, training=training, extra=extra)
        return self.at(bundle)

    def train(self, bundle, init, snapshots, *extra):
        """Losses of two steps, and the output of the run."""
        metrics = self.at("metrics.jsonl")
        _, _, said = z.call("zorse-run", bundle, "--data", self.data, "--max-steps", STEPS, "--load-weights", init, "--checkpoint-dir", self.at(snapshots), "--metrics-file", metrics, "--quiet", *extra)
        with open(metrics) as f:
            return [m["loss"] for m in map(json.loads, f) if "loss" in m], said

    def first_loss(self, bundle, init, *extra):
        metrics = self.at("metrics.jsonl")
        _, _, said = z.call("zorse-run", bundle, "--data", self.data, "--max-steps", 1, "--load-weights", init, "--metrics-file", metrics, "--quiet", *extra)
        with open(metrics) as f:
            return [m["loss"] for m in map(json.loads, f) if "loss" in m][0], said

    def reference(self, model):
        """Two steps trained by PyTorch."""
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.95), eps=1e-5, weight_decay=0.1)
        losses = []
        for step in range(STEPS):
            ids = torch.from_numpy(self.ids[step * BATCH:(step + 1) * BATCH])
            loss = model(input_ids=ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            losses.append(float(loss))
        return losses

    def loss(self, model):
        ids = torch.from_numpy(self.ids[:BATCH])
        with torch.no_grad():
            return float(model(input_ids=ids, labels=ids).loss)

    def logits(self, model):
        with torch.no_grad():
            return model.eval()(input_ids=torch.from_numpy(self.ids)).logits.float()


def load(path, **more):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **more)


def index_of(path):
    with open(os.path.join(path, "model.safetensors.index.json")) as f:
        return json.load(f)


def slices(snapshots):
    """Names of parameters by whether they or their optimizer states are in the newest snapshot."""
    folder = os.path.join(snapshots, sorted(n for n in os.listdir(snapshots) if n.startswith("step-"))[-1])
    with open(os.path.join(folder, "index.json")) as f:
        index = json.load(f)
    names = [p["name"] for p in index["parameters"]]
    kept = [(names[s["parameter"]], s["moment"]) for file in index["files"] for s in file["shards"]]
    return {n for n, m in kept if m < 0}, {n for n, m in kept if m >= 0}, index
