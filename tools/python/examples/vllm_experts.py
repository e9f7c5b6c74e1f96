"""An experts class in the form that vLLM and SGLang have for theirs: create_weights, process_weights_after_loading, apply.

To drop it into an engine, derive from its base class for quantised experts and keep the three methods; nothing else here knows of an engine.
One W4MoEMethod serves all layers of a model: layers of one shape share a plan, and all layers share one scratch.
"""
from dataclasses import dataclass
from typing import Dict, Optional

import torch
import w4moe
from w4moe.torch_ops import Experts


@dataclass(frozen=True)
class ParallelConfig:
    """This process among those of its tensor- and expert-parallel groups."""

    tp_rank: int = 0
    tp_size: int = 1
    ep_rank: int = 0
    ep_size: int = 1


class W4MoEMethod:
    """Experts with MXFP4 weights and 16-bit activations."""

    def __init__(self, engine: w4moe.Engine, parallel: ParallelConfig) -> None:
        self.engine = engine
        self.parallel = parallel
        self.plans: Dict[w4moe.Problem, w4moe.Plan] = {}
        self.scratch: Optional[w4moe.Scratch] = None

    @property
    def plan(self) -> w4moe.Plan:
        """Of the layer that was made last."""
        return list(self.plans.values())[-1]

    def create_weights(self, layer: torch.nn.Module, num_experts: int, hidden_size: int, intermediate_size: int, top_k: int, max_tokens: int, dtype: str = "bf16",
                       activation: str = "silu", bias: bool = False, device: str = "cuda") -> None:
        """Makes the parameters that the engine's loader fills with this rank's part: gate rows first, then up rows. Plans the layer, and builds its
        kernels where no layer of its shape came before."""
        experts, features = num_experts // self.parallel.ep_size, intermediate_size // self.parallel.tp_size
        problem = w4moe.Problem(hidden_size, features, experts, top_k, max_tokens, "mxfp4", activation, dtype, bias)
        if problem not in self.plans:
            self.plans[problem] = self.engine.plan(problem)
            self.engine.build(self.plans[problem])
            if self.scratch is not None and self.plans[problem].scratch_bytes > self.scratch.bytes:
                raise ValueError("plan every shape of the model before the first layer is loaded: the scratch does not grow")
        layer.w4moe_problem = problem

        def parameter(name: str, shape: tuple, kind: torch.dtype) -> None:
            layer.register_parameter(name, torch.nn.Parameter(torch.empty(shape, dtype=kind, device=device), requires_grad=False))

        parameter("w13_weight", (experts, 2 * features, hidden_size // 2), torch.uint8)
        parameter("w13_weight_scale", (experts, 2 * features, hidden_size // 32), torch.uint8)
        parameter("w2_weight", (experts, hidden_size, features // 2), torch.uint8)
        parameter("w2_weight_scale", (experts, hidden_size, features // 32), torch.uint8)
        if bias:
            parameter("w13_bias", (experts, 2 * features), torch.float32)
            parameter("w2_bias", (experts, hidden_size), torch.float32)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Packs the loaded parameters and drops them: a layer's weights are on the device once."""
        problem: w4moe.Problem = layer.w4moe_problem
        plan = self.plans[problem]
        if self.scratch is None:
            self.scratch = w4moe.Scratch(self.engine, self.plans.values())
        adds_bias = self.parallel.tp_rank == 0  # the ranks' outputs are added up: one of them brings the bias of W2
        weights = w4moe.Weights(
            "gate_first",
            gate_up=w4moe.Matrix(layer.w13_weight, layer.w13_weight_scale, bias=layer.w13_bias if problem.bias else None),
            down=w4moe.Matrix(layer.w2_weight, layer.w2_weight_scale, bias=layer.w2_bias if problem.bias and adds_bias else None),
            output_bias=adds_bias,
        )
        first = self.parallel.ep_rank * problem.experts
        layer.experts = Experts(w4moe.MoE(self.engine, plan, weights, self.scratch, first_expert=first))
        for name in [name for name, _ in layer.named_parameters(recurse=False) if name.startswith(("w13_", "w2_"))]:
            delattr(layer, name)

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor) -> torch.Tensor:
        """x [tokens, H], topk_weights f32 or bf16 [tokens, k], topk_ids i32 or i64 [tokens, k] with global numbers -> this rank's part of the
        output, to be added up over the ranks. On the current stream; may be captured and compiled."""
        return layer.experts(x, topk_weights, topk_ids)
