"""Seconds of PyTorch's own operators on the same GPU: torch_times.py products | attention. Each line of standard input
is a name or a line of products.txt; prints NAME SECONDS.
"""
import re
import sys

import torch

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def seconds(run, tries=5, inner=4):
    run()
    least = 1e300
    for _ in range(tries):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(inner):
            run()
        end.record()
        end.synchronize()
        least = min(least, begin.elapsed_time(end) * 1e-3 / inner)
    return least


def product(line):
    name, kind, transpose, *sizes = line.split()
    kind, _, bias = kind.partition("+")
    m, n, k, batch, pad, _ = map(int, sizes)

    def matrix(rows, columns, flip):
        rows, columns = (columns, rows) if flip else (rows, columns)
        data = torch.randn(batch, rows, columns + pad, device="cuda").to(TYPES[kind])[:, :, :columns]
        return data.transpose(1, 2) if flip else data

    a, b = matrix(m, k, transpose[0] == "t"), matrix(k, n, transpose[1] == "t")
    if bias:
        vector = torch.randn(n, device="cuda").to(TYPES[kind])
        return name, seconds(lambda: torch.addmm(vector, a[0], b[0]))
    return name, seconds(lambda: torch.matmul(a, b))


def attention(name):
    b, s, h, g, d = map(int, re.search(r"b(\d+) s(\d+) h(\d+)/(\d+) d(\d+)", name).groups())
    kind = TYPES[re.search(r"\b(bf16|f16)\b", name)[1]]
    q, k, v = (torch.randn(b, heads, s, d, device="cuda", dtype=kind, requires_grad="gradient" in name) for heads in (h, g, g))

    def forward():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=h != g)

    if "gradient" not in name:
        return name, seconds(forward)
    out = forward()
    gradient = torch.randn_like(out)
    return name, seconds(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))


for line in sys.stdin.read().splitlines():
    print(*(product if sys.argv[1] == "products" else attention)(line), flush=True)
