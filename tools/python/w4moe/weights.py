"""A layer's weights as a checkpoint holds them."""
from __future__ import annotations

import ctypes as C
from dataclasses import dataclass, field
from typing import Any, List, Optional, Sequence, Tuple, Union

from . import _abi
from .errors import InvalidArgument
from .problem import Problem, choice
from .tensors import View, view_of

Tensors = Union[Any, Sequence[Any], None]


@dataclass
class Matrix:
    """One matrix of all experts, rows x k with k along the contraction. Each member is one tensor whose first dimension is the expert, a
    list of one tensor per expert, or None.

    codes: u8 or i8 [rows, k / 2], or i32 [rows, k / 8]; awq_words: i32 [rows / 8, k]
    scales: [rows, groups] of the format's type; e8m0 and e4m3 also as u8
    zeros: formats with ":zp"
    bias: bf16, f16 or f32 [rows]
    """

    codes: Tensors = None
    scales: Tensors = None
    zeros: Tensors = None
    bias: Tensors = None


@dataclass
class Weights:
    """What a checkpoint holds of one layer. Every order that the format needs must be named."""

    gate_up_order: str  #: "separate", "gate_first", "up_first", "interleaved"
    gate_up: Matrix = field(default_factory=Matrix)  #: 2 I rows of H; all orders but separate
    gate: Matrix = field(default_factory=Matrix)  #: I rows of H; separate, gated
    up: Matrix = field(default_factory=Matrix)  #: I rows of H; separate, and ungated
    down: Matrix = field(default_factory=Matrix)  #: H rows of I
    code_order: str = "low_nibble_first"  #: "low_nibble_first", "high_nibble_first", "awq_words"
    code_sign: Optional[str] = None  #: INT4: "offset8" or "twos_complement"
    scale_layout: str = "row_major"  #: "row_major", "transposed", "swizzled_128x4"
    zero_order: Optional[str] = None  #: INT4 with zero points: "bytes", "nibbles_along_rows", "awq_words", "nibbles_along_groups", ..._high_first
    zero_add: int = 0  #: added to stored zero points, modulo 16
    global_convention: str = "none"  #: "none", "multiply" (ModelOpt), "reciprocal" (compressed-tensors)
    gate_global: Optional[Sequence[float]] = None  #: one fp32 per expert
    up_global: Optional[Sequence[float]] = None
    down_global: Optional[Sequence[float]] = None
    output_bias: bool = True  #: False where another rank of the tensor-parallel group adds the bias of `down`

    @classmethod
    def gpt_oss(cls, gate_up_blocks: Any, gate_up_scales: Any, down_blocks: Any, down_scales: Any, gate_up_bias: Any = None, down_bias: Any = None,
                output_bias: bool = True) -> "Weights":
        """MXFP4 as gpt-oss ships it: blocks u8 [E, rows, k / 32, 16], scales u8 [E, rows, k / 32], gate and up rows interleaved."""
        return cls("interleaved", gate_up=Matrix(_flat_blocks(gate_up_blocks, "gate_up_blocks"), gate_up_scales, bias=gate_up_bias),
                   down=Matrix(_flat_blocks(down_blocks, "down_blocks"), down_scales, bias=down_bias), output_bias=output_bias)


def _flat_blocks(blocks: Any, name: str) -> View:
    view = view_of(blocks, name)
    if len(view.shape) != 4:
        raise InvalidArgument(f"{name}: {view.describe()}, expected [experts, rows, groups, 16]")
    experts, rows, groups, bytes_ = view.shape
    return view.reshaped(experts, rows, groups * bytes_)


def source_of(problem: Problem, weights: Any) -> Any:
    """What has `c`, a w4moe_source_weights, and `on_gpu`: of Weights, or a layer of a checkpoint as it is."""
    return Source(problem, weights) if isinstance(weights, Weights) else weights


class Source:
    """A w4moe_source_weights with all that it points to."""

    def __init__(self, problem: Problem, weights: Weights) -> None:
        self.views: List[View] = []
        self._kept: List[Any] = []
        c = _abi.SourceWeights()
        c.gate_up_order = choice("gate_up_order", weights.gate_up_order, _abi.GATE_UP)
        c.code_order = choice("code_order", weights.code_order, _abi.CODES)
        c.code_sign = choice("code_sign", weights.code_sign, _abi.CODE_SIGNS)
        c.scale_layout = choice("scale_layout", weights.scale_layout, _abi.SCALES)
        c.zero_order = choice("zero_order", weights.zero_order, _abi.ZEROS)
        c.global_convention = choice("global_convention", weights.global_convention, _abi.GLOBALS)
        c.zero_add = weights.zero_add
        c.omit_output_bias = not weights.output_bias
        for name in ("gate_up", "gate", "up", "down"):
            setattr(c, name, self._matrix(name, getattr(weights, name)))
        for name in ("gate_global", "up_global", "down_global"):
            setattr(c, name, self._globals(name, getattr(weights, name), problem.experts))
        on_gpu = {view.on_gpu for view in self.views}
        if len(on_gpu) > 1:
            places = {view.on_gpu: f"{view.name} on {view.describe().rsplit(' on ', 1)[1]}" for view in self.views}
            raise InvalidArgument(f"weights lie on the CPU and on a GPU: {places[False]}, {places[True]} (accepted: all on one of them)")
        c.on_device = True in on_gpu
        self.c = c

    @property
    def on_gpu(self) -> bool:
        return bool(self.c.on_device)

    def _matrix(self, name: str, matrix: Matrix) -> _abi.Matrix:
        return _abi.Matrix(*(self._operand(f"{name}.{part}", getattr(matrix, part)) for part in ("codes", "scales", "zeros", "bias")))

    def _operand(self, name: str, tensors: Tensors) -> _abi.Operand:
        if tensors is None:
            return _abi.Operand(None, 0)
        many = tensors if isinstance(tensors, (list, tuple)) else None
        views = [view_of(t, f"{name}[{i}]") for i, t in enumerate(many)] if many is not None else [view_of(tensors, name)]
        array = (_abi.Tensor * len(views))()
        for place, view in zip(array, views):
            place.data = view.pointer
            place.type = choice(f"{view.name}: dtype", view.dtype, _abi.TENSORS)
            place.rank = len(view.shape)
            place.shape = self._numbers(view.shape)
            place.strides_elems = None if view.contiguous else self._numbers(view.strides)
        self.views += views
        self._kept.append(array)
        return _abi.Operand(array, len(views))

    def _numbers(self, values: Tuple[int, ...]) -> Any:
        array = (C.c_int64 * max(len(values), 1))(*values)
        self._kept.append(array)
        return C.cast(array, C.POINTER(C.c_int64))

    def _globals(self, name: str, values: Optional[Sequence[float]], experts: int) -> Any:
        if values is None:
            return None
        numbers = values.tolist() if hasattr(values, "tolist") else list(values)
        if not isinstance(numbers, list) or len(numbers) != experts or not all(isinstance(number, (int, float)) for number in numbers):
            raise InvalidArgument(f"{name}: expected {experts} numbers, one per expert")
        array = (C.c_float * experts)(*numbers)
        self._kept.append(array)
        return C.cast(array, C.POINTER(C.c_float))
