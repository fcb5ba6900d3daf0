"""A GPT-2-style language model with the loss inside: learned positions, pre-norm blocks, GELU (tanh), tied or untied head."""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class GPTConfig:
    vocabulary: int = 256
    context: int = 64
    layers: int = 3
    heads: int = 4
    width: int = 64
    tied: bool = True
    bias: bool = True
    dropout: float = 0.0


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.heads
        self.c_attn = nn.Linear(c.width, 3 * c.width, bias=c.bias)
        self.c_proj = nn.Linear(c.width, c.width, bias=c.bias)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = self.c_attn(x).split(width, dim=2)
        split = lambda t: t.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(q), split(k), split(v), is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(rows, length, width))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_fc = nn.Linear(c.width, 4 * c.width, bias=c.bias)
        self.c_proj = nn.Linear(4 * c.width, c.width, bias=c.bias)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1 = nn.LayerNorm(c.width, bias=c.bias)
        self.attn = Attention(c)
        self.ln_2 = nn.LayerNorm(c.width, bias=c.bias)
        self.mlp = MLP(c)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x):
        x = x + self.dropout(self.attn(self.ln_1(x)))
        return x + self.dropout(self.mlp(self.ln_2(x)))


class GPT(nn.Module):
    """forward(input_ids [rows, length], labels [rows, length]) -> mean cross-entropy; labels are already shifted, -100 is ignored."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocabulary, config.width)
        self.wpe = nn.Embedding(config.context, config.width)
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width, bias=config.bias)
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.tied:
            self.lm_head.weight = self.wte.weight

    def logits(self, input_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))

    def forward(self, input_ids, labels):
        logits = self.logits(input_ids)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=-100)


def initialise(model, seed=0, distinct=False):
    """Initializes weights as in GPT-2. With distinct=True norm gains and biases are also random, so that no two parameters are equal
    (exporters merge equal ones)."""
    generator = torch.Generator().manual_seed(seed)
    layers = len(model.h) if hasattr(model, "h") else len(model.layers)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() >= 2:
                std = 0.02 / math.sqrt(2 * layers) if name.endswith(("c_proj.weight", "o_proj.weight", "down_proj.weight")) else 0.02
                p.normal_(0.0, std, generator=generator)
            else:
                p.fill_(1.0 if "ln_" in name or "norm" in name else 0.0)
                if name.endswith("bias"):
                    p.zero_()
                if distinct:
                    p.add_(torch.empty_like(p).normal_(0.0, 0.01, generator=generator))
    return model
