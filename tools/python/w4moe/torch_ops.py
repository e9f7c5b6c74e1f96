"""The layer as a torch operator: opaque to torch.compile, on torch's current stream, safe in CUDA graphs.

    layer = w4moe.MoE(engine, plan, weights, scratch)
    experts = w4moe.torch_ops.Experts(layer)                  # an nn.Module
    out = experts(hidden, topk_weights, topk_ids)

Two operators are registered, ``w4moe::moe`` (returns a new tensor) and ``w4moe::moe_out`` (writes one that is given). They take the layer as
a number, from `register`, since operators take no objects; a layer is known under its number as long as it lives.
"""
from __future__ import annotations

import itertools
import weakref
from typing import Any

import torch

from .errors import InvalidArgument
from .moe import MoE

_layers: "weakref.WeakValueDictionary[int, MoE]" = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def register(layer: MoE) -> int:
    """The number of a layer, for the operators. The caller keeps the layer."""
    number = getattr(layer, "_torch_number", None)
    if number is None:
        number = next(_numbers)
        layer._torch_number = number  # type: ignore[attr-defined]
        _layers[number] = layer
    return number


def _layer(number: int) -> MoE:
    layer = _layers.get(number)
    if layer is None:
        raise InvalidArgument(f"layer {number} is not registered, or gone")
    return layer


@torch.library.custom_op("w4moe::moe", mutates_args=())
def moe(hidden: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor, layer: int) -> torch.Tensor:
    """hidden [m, H], topk_ids i32 or i64 [m, k], topk_weights f32 or bf16 [m, k] -> [m, H] contiguous, of hidden's dtype."""
    out = torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device)
    return _layer(layer).run(hidden, topk_ids, topk_weights, out)


@moe.register_fake
def _(hidden: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor, layer: int) -> torch.Tensor:
    return torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device)


@torch.library.custom_op("w4moe::moe_out", mutates_args=("out",))
def moe_out(hidden: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor, out: torch.Tensor, layer: int) -> None:
    """As w4moe::moe, into `out`, whose rows may be strided."""
    _layer(layer).run(hidden, topk_ids, topk_weights, out)


@moe_out.register_fake
def _(hidden: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor, out: torch.Tensor, layer: int) -> None:
    return None


class Experts(torch.nn.Module):
    """A layer's experts as a module: forward(hidden, topk_weights, topk_ids) -> output of hidden's shape."""

    def __init__(self, layer: MoE) -> None:
        super().__init__()
        self.layer = layer
        self.number = register(layer)

    def forward(self, hidden: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor) -> torch.Tensor:
        flat = hidden.reshape(-1, hidden.shape[-1])
        out: Any = torch.ops.w4moe.moe(flat, topk_ids, topk_weights, self.number)
        return out.reshape(hidden.shape)
