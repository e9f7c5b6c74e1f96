"""What a layer is and what a plan says of it."""
from __future__ import annotations

import ctypes as C
import json
from dataclasses import dataclass
from typing import Any, Dict, Optional, Union

from . import _abi
from ._abi import library
from .errors import InvalidArgument, check


def choice(name: str, value: Any, accepted: Dict[Any, int]) -> int:
    """The number of a name, or an error that lists the names."""
    try:
        return accepted[value]
    except (KeyError, TypeError):
        raise InvalidArgument(f"{name} = {value!r} (accepted: {', '.join(map(repr, accepted))})") from None


def text(value: Optional[str]) -> Optional[bytes]:
    return None if value is None else value.encode("utf-8")


@dataclass(frozen=True)
class Problem:
    """One MoE layer as one rank holds it: ``out[t] = sum_j w[t, j] * W2[e] act(W13[e] x[t])`` with ``e = ids[t, j]``.

    With tensor parallelism `intermediate` is the rank's part. With expert parallelism `experts` are those that the rank holds.
    """

    hidden: int  #: H, elements of a token
    intermediate: int  #: I, features between the projections, of this rank
    experts: int  #: E, experts held by this rank
    topk: int  #: routes of a token
    max_tokens: int  #: largest number of tokens of a run
    format: str = "mxfp4"  #: "mxfp4", "mxfp4:wide", "nvfp4", "int4:g32", "int4:g64", "int4:g128", "int4:row"; int4 also with ":zp", ":f16"
    activation: str = "silu"  #: "silu", "swiglu-oai", "geglu-tanh", "geglu-erf", "situ", "relu2", "silu-ungated", "gelu-ungated"
    dtype: str = "bf16"  #: of activations and output: "bf16" or "f16"
    bias: bool = False  #: both projections carry a bias per expert
    weight_on_input: bool = False  #: the router weight multiplies the input instead of the output
    compact_tail: bool = False  #: MXFP4 accepts an I that is a multiple of 8 with a partial last group
    alpha: Optional[float] = None  #: None: the activation's own (swiglu-oai: 1.702)
    beta: Optional[float] = None  #: None: the activation's own (swiglu-oai: 1)
    limit: Union[float, str, None] = None  #: clamp; None: the activation's own (swiglu-oai: 7), "none": no clamp
    name: str = "layer"

    def _as_c(self) -> _abi.Problem:
        c = _abi.Problem(name=text(self.name), format=text(self.format), activation=text(self.activation))
        for field in ("hidden", "intermediate", "experts", "topk", "max_tokens"):
            value = getattr(self, field)
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise InvalidArgument(f"{field} = {value!r} is no integer")
            setattr(c, field, value.__index__())
        c.dtype = choice("dtype", self.dtype, {"bf16": 1, "f16": 2})
        c.has_bias, c.weight_on_input, c.compact_tail = bool(self.bias), bool(self.weight_on_input), bool(self.compact_tail)
        if self.alpha is not None:
            c.has_alpha, c.alpha = 1, self.alpha
        if self.beta is not None:
            c.has_beta, c.beta = 1, self.beta
        if self.limit == "none":
            c.no_limit = 1
        elif isinstance(self.limit, str):
            raise InvalidArgument(f"limit = {self.limit!r} (accepted: a number, 'none', None)")
        elif self.limit is not None:
            c.has_limit, c.limit = 1, self.limit
        return c


class Plan:
    """Which kernels serve a layer, and what memory that takes. Immutable; serves all layers of its shape."""

    def __init__(self, problem: Problem, engine: Any = None, arch: Optional[str] = None, sms: int = 0, scratch_cap_bytes: int = 0, pins: str = "") -> None:
        """For the engine's device, or for a named one ("sm_90a") without engine, driver and GPU."""
        self.problem = problem
        self._handle = C.c_void_p()
        options = _abi.PlanOptions(arch=text(arch), sms=sms, scratch_cap_bytes=scratch_cap_bytes, pins=text(pins or None))
        check(library.plan_create(engine._handle if engine is not None else None, C.byref(problem._as_c()), C.byref(options), C.byref(self._handle)))
        info = _abi.PlanInfo()
        check(library.plan_get_info(self._handle, C.byref(info)))
        self.scratch_bytes: int = info.scratch_bytes  #: exact and binding; at most the cap
        self.scratch_align_bytes: int = info.scratch_align_bytes
        self.prepared_weight_bytes: int = info.prepared_weight_bytes  #: of one layer, exact
        self.prepared_align_bytes: int = info.prepared_align_bytes
        self.layout_id: int = info.layout_id  #: prepared weights of another layout are refused
        self.max_tokens: int = info.max_tokens
        self.chunk_tokens: int = info.chunk_tokens  #: tokens of one launch sequence: fewer than max_tokens under a cap
        self.debug_guard_bytes: int = info.debug_guard_bytes
        self.kernels: int = info.kernels
        self.arch: str = info.arch.decode()
        self.sms: int = info.sms

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.plan_destroy(self._handle)

    def explain(self) -> str:
        """Every choice with its reason."""
        return library.plan_explain(self._handle).decode()

    def json(self) -> Dict[str, Any]:
        """The plan as data, as ``w4moe plan --json`` prints it."""
        return json.loads(library.plan_json(self._handle))

    def launches(self, tokens: int) -> str:
        """The kernels that a run of so many tokens launches: "route + fc1.n16 + fc2.n16 + combine"."""
        buffer = C.create_string_buffer(512)
        if library.plan_launches(self._handle, tokens, buffer, len(buffer)) == 0:
            raise InvalidArgument(f"tokens = {tokens} (accepted: 0 to {self.max_tokens})")
        return buffer.value.decode()

    def __repr__(self) -> str:
        return f"<w4moe.Plan {self.problem.name}: {self.kernels} kernels for {self.arch}, {self.scratch_bytes} bytes of scratch, {self.prepared_weight_bytes} of weights>"
