"""zorse.train takes six kinds of modules as they are: a causal language model, a classifier of sequences and a vision model of transformers (Auto classes), a T5, a
module that returns its own loss, and a model that PEFT has wrapped. Their losses and parameters are those of PyTorch's loop; the trained parameters are back in
the module, whose loss in PyTorch is that of zorse's evaluation (exit code 77 without PyTorch).
"""
import copy
import math
import os
import sys
import warnings

import harness as z
from python_package_torch import ensure_torch

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))
ensure_torch()
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import zorse  # noqa: E402
from python_trainer import Classifier, difference, reference  # noqa: E402

STEPS, BATCH, LIMIT = 6, 8, 1e-5  # relative, f32
SMALL = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)


def texts(count=24, length=10):
    random = np.random.default_rng(1)
    ids = random.integers(3, 60, (count, length))
    mask = (np.arange(length) < random.integers(4, length + 1, count)[:, None]).astype(np.int64)
    return ids * mask, mask


def causal():
    ids, mask = texts()
    config = transformers.LlamaConfig(vocab_size=60, num_key_value_heads=1, max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, **SMALL)
    return transformers.AutoModelForCausalLM.from_config(config), {"input_ids": ids, "attention_mask": mask, "labels": np.where(mask > 0, ids, -100)}


def classifier():
    ids, mask = texts()
    config = transformers.BertConfig(vocab_size=60, max_position_embeddings=32, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **SMALL)
    return transformers.AutoModelForSequenceClassification.from_config(config), {"input_ids": ids, "attention_mask": mask, "labels": ids[:, 0] % 3}


def vision():
    random = np.random.default_rng(2)
    config = transformers.ViTConfig(image_size=16, patch_size=8, num_labels=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **SMALL)
    pixels = random.standard_normal((24, 3, 16, 16)).astype(np.float32)
    return transformers.AutoModelForImageClassification.from_config(config), {"pixel_values": pixels, "labels": random.integers(0, 4, 24)}


def translation():
    ids, mask = texts()
    config = transformers.T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0)
    return transformers.AutoModelForSeq2SeqLM.from_config(config), {"input_ids": ids, "attention_mask": mask, "labels": np.ascontiguousarray(np.where(mask > 0, 62 - ids, -100)[:, :7])}


def own():
    ids, _ = texts()
    return Classifier(), {"ids": ids[:, :6] % 16, "labels": ids[:, 1] % 5}


def adapted():
    from peft import LoraConfig, get_peft_model

    model, data = causal()
    return get_peft_model(model, LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")), data


KINDS = {"AutoModelForCausalLM": causal, "AutoModelForSequenceClassification": classifier, "AutoModelForImageClassification": vision, "T5": translation,
         "a module with its own loss": own, "a model wrapped by PEFT": adapted}


def check(name, make, results):
    torch.manual_seed(3)
    model, data = make()
    model.train()
    expected = copy.deepcopy(model)
    before = {key: p.detach().clone() for key, p in model.named_parameters()}

    def optimizer_of(module):
        return torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=5e-3, weight_decay=0.01, eps=1e-6)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = zorse.train(model, data, max_steps=STEPS, global_batch_size=BATCH, optimizer=optimizer_of(model), eval_data=data, eval_interval=STEPS)
    optimizer = optimizer_of(expected)
    theirs = reference(expected, optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0), data, STEPS, BATCH)
    ours = dict(model.named_parameters())
    # The gradient of biases of keys is zero except for rounding, which Adam normalizes.
    kept = [key for key, p in expected.named_parameters() if not key.endswith(("key.bias", "k_proj.bias"))]
    errors = [abs(a - b) / abs(b) for a, b in zip(run.losses, theirs)]
    parameters = dict(expected.named_parameters())
    errors += [float((ours[key] - parameters[key]).detach().norm() / parameters[key].detach().norm().clamp(min=1e-3)) for key in kept]
    results.append(z.check(f"{name}: losses and parameters", float(np.max(errors)) if len(run.losses) == STEPS else math.inf, LIMIT))
    trained = [key for key, p in ours.items() if p.requires_grad]
    unmoved = sum(torch.equal(ours[key], before[key]) for key in kept if key in trained) + sum(not torch.equal(ours[key], before[key]) for key in ours if key not in trained)
    results.append(z.check(f"{name}: trained parameters that did not move, or frozen ones that did", float(unmoved), 0))
    with torch.no_grad():
        found = model(**{key: torch.as_tensor(value) for key, value in data.items()})
    loss = float(found if torch.is_tensor(found) else found.loss)
    results.append(z.check(f"{name}: loss of the module in PyTorch against the reported evaluation", abs(loss - run.loss) / abs(loss), LIMIT))


def main():
    try:
        import peft  # noqa: F401
    except ImportError:
        print("skip: PEFT is not installed (tools/python-env.sh installs it)")
        del KINDS["a model wrapped by PEFT"]
    results = []
    for name, make in KINDS.items():
        check(name, make, results)
    z.finish(results)


if __name__ == "__main__":
    main()
