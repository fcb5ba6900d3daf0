"""A LLaMA-style language model with the loss inside: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class LlamaConfig:
    vocabulary: int = 256
    layers: int = 3
    heads: int = 4
    key_heads: int = 2
    width: int = 64
    hidden: int = 176
    tied: bool = False
    theta: float = 10000.0
    epsilon: float = 1e-5


class RMSNorm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    swapped = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + swapped * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.key_heads, self.size = c.heads, c.key_heads, c.width // c.heads
        self.q_proj = nn.Linear(c.width, c.heads * self.size, bias=False)
        self.k_proj = nn.Linear(c.width, c.key_heads * self.size, bias=False)
        self.v_proj = nn.Linear(c.width, c.key_heads * self.size, bias=False)
        self.o_proj = nn.Linear(c.heads * self.size, c.width, bias=False)

    def forward(self, x, cos, sin):
        rows, length, width = x.shape
        q = self.q_proj(x).view(rows, length, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(rows, length, self.key_heads, self.size).transpose(1, 2)
        v = self.v_proj(x).view(rows, length, self.key_heads, self.size).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        repeat = self.heads // self.key_heads
        k, v = k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(rows, length, width))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.width, c.hidden, bias=False)
        self.up_proj = nn.Linear(c.width, c.hidden, bias=False)
        self.down_proj = nn.Linear(c.hidden, c.width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RMSNorm(c.width, c.epsilon)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.width, c.epsilon)
        self.mlp = MLP(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """forward(input_ids, labels) -> mean cross-entropy; the graph shifts the labels itself (feed labels = ids), -100 is ignored."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.epsilon)
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.tied:
            self.lm_head.weight = self.embed_tokens.weight

    def logits(self, input_ids):
        size = self.config.width // self.config.heads
        frequencies = 1.0 / self.config.theta ** (torch.arange(0, size, 2, device=input_ids.device).float() / size)
        angles = torch.arange(input_ids.shape[1], device=input_ids.device).float()[:, None] * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos(), angles.sin()
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))

    def forward(self, input_ids, labels):
        logits = self.logits(input_ids)
        shifted = F.pad(labels, (0, 1), value=-100)[:, 1:]
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), shifted.reshape(-1), ignore_index=-100)
