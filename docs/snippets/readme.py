import zorse
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_head=4, n_embd=128, n_positions=64, vocab_size=256))
devices = [{"name": "fast", "kind": "cpu", "flops_per_second": "40 GFLOP/s", "memory": "2 GiB"},
           {"name": "slow", "kind": "cpu", "flops_per_second": "10 GFLOP/s", "memory": "2 GiB"}]
cluster = {"nodes": [{"name": "here", "devices": devices}]}
run = zorse.train(model, "train.txt", max_steps=100, global_batch_size=16, seq_length=64, lr=2e-3, cluster=cluster)
print(f"loss {run.losses[0]:.2f} -> {run.losses[-1]:.2f}")
report = zorse.plan(run.bundle, cluster=cluster, global_batch_size=16, plan=f"{run.bundle.path}/plan.json")
for device in report.figures["devices"]:
    print(f"{device['name']}: {device['samples']} of 16 samples")
