"""Rewrites mixtures of experts of transformers into a form that exporters support: every expert computes every position, and experts that the router did not choose have weight 0.

Libraries sort positions by expert, so shapes depend on the data and no static graph can represent them. The dense form has the same results and gradients but computes
all experts: `cost` returns how many times the computation of the chosen ones.
"""
import contextlib

import torch

NAME = "zorse_dense"


def dense(self, hidden_states, top_k_index, top_k_weights):
    """hidden_states [positions, width], top_k_index and top_k_weights [positions, chosen] ->
    [positions, width]; parameters as in transformers' Experts."""
    experts = self.num_experts if hasattr(self, "num_experts") else self.down_proj.shape[0]
    gates = torch.zeros(hidden_states.shape[0], experts, dtype=top_k_weights.dtype, device=hidden_states.device).scatter(-1, top_k_index, top_k_weights)
    order = "edo" if self.is_transposed else "eod"

    def times(x, weight, bias, of):
        y = torch.einsum(f"{of},{order}->teo", x, weight)
        return y + bias if bias is not None else y

    up = times(hidden_states, self.gate_up_proj if self.has_gate else self.up_proj,
               (self.gate_up_proj_bias if self.has_gate else self.up_proj_bias) if self.has_bias else None, "td")
    inner = self._apply_gate(up) if self.has_gate else self.act_fn(up)
    down = times(inner, self.down_proj, self.down_proj_bias if self.has_bias else None, "ted")
    if getattr(self, "has_post_expert_norm", False):
        down = self.post_expert_norm(down)
    return (down * gates.unsqueeze(-1)).sum(1).to(hidden_states.dtype)


def configs(module):
    found = {id(m.config): m.config for m in module.modules() if hasattr(getattr(m, "config", None), "_experts_implementation")}
    return list(found.values())


def cost(module):
    """Computation of the dense form relative to the chosen experts, by layer name."""
    found = {}
    for name, m in module.named_modules():
        if hasattr(m, "_apply_gate") and hasattr(getattr(m, "config", None), "_experts_implementation"):
            chosen = next((getattr(m.config, key) for key in ("num_experts_per_tok", "moe_k", "top_k", "moe_topk") if isinstance(getattr(m.config, key, None), int)), None)
            experts = getattr(m, "num_experts", None) or m.down_proj.shape[0]
            found[name] = experts / chosen if chosen else float(experts)
    return found


@contextlib.contextmanager
def exportable(module):
    """Inside, experts of transformers are dense. Other modules are not changed."""
    changed = configs(module)
    if not changed:
        yield
        return
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(NAME, dense)
    before = [c._experts_implementation for c in changed]
    for c in changed:
        c._experts_implementation = NAME
    try:
        yield
    finally:
        for c, name in zip(changed, before):
            c._experts_implementation = name
