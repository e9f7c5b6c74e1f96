"""Checkpoints as models ship them, and packed files: read in place by the library."""
from __future__ import annotations

import ctypes as C
import dataclasses
import os
from dataclasses import dataclass
from typing import Any, List, Tuple, Union

from . import _abi
from ._abi import library
from .errors import InvalidArgument, check
from .problem import Problem
from .tensors import CPU, View

_DTYPE_NAMES = {1: "bf16", 2: "f16"}


def _problem_of(c: _abi.Problem) -> Problem:
    return Problem(
        hidden=c.hidden, intermediate=c.intermediate, experts=c.experts, topk=c.topk, max_tokens=c.max_tokens, format=c.format.decode(),
        activation=c.activation.decode(), dtype=_DTYPE_NAMES[c.dtype], bias=bool(c.has_bias), weight_on_input=bool(c.weight_on_input),
        compact_tail=bool(c.compact_tail), alpha=c.alpha if c.has_alpha else None, beta=c.beta if c.has_beta else None,
        limit="none" if c.no_limit else c.limit if c.has_limit else None, name=c.name.decode(),
    )  # fmt: skip


class _WithProblem:
    """What tells of a layer, and what to plan for it."""

    prefix: str  #: of its tensors' names
    family: str  #: "gpt-oss", "modelopt", "compressed-tensors", ...
    first_expert: int  #: number of local expert 0 in the whole layer
    total_experts: int
    _problem: Problem

    def problem(self, max_tokens: int, **changes: Any) -> Problem:
        """The layer's problem for a largest number of tokens; further members may be changed (topk, where the checkpoint does not tell)."""
        return dataclasses.replace(self._problem, max_tokens=max_tokens, **changes)


class CheckpointLayer(_WithProblem):
    """One layer of a checkpoint, or a rank's part of it: takes the place of Weights. No byte is copied until it is packed."""

    on_gpu = False

    def __init__(self, handle: C.c_void_p) -> None:
        self._handle = handle
        info = _abi.LayerInfo()
        check(library.layer_get_info(handle, C.byref(info)))
        self.prefix, self.family, self.fingerprint = (text.decode() for text in (info.prefix, info.family, info.fingerprint))
        self.first_expert, self.total_experts = info.first_expert, info.total_experts
        self._problem = _problem_of(library.layer_problem(handle).contents)
        self.c: _abi.SourceWeights = library.layer_source(handle).contents

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.layer_destroy(self._handle)


@dataclass(frozen=True)
class CheckpointEntry:
    """What is known of a layer without reading it."""

    prefix: str
    number: int  #: N of "layers.N."; -1 where there is none
    tensors: int
    bytes: int  #: of its expert tensors
    other_dtype: str  #: "": quantised to 4 bits; else the type that the experts have


class Checkpoint:
    """A folder with config.json and safetensors shards, an index file, or one safetensors file."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Maps every shard and checks every header; reads no weights."""
        self._handle = C.c_void_p()
        check(library.checkpoint_open(os.fsencode(path), C.byref(self._handle)))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.checkpoint_destroy(self._handle)

    @property
    def layers(self) -> List[CheckpointEntry]:
        """Layers of routed experts, by number."""
        entries = []
        for index in range(library.checkpoint_count(self._handle)):
            entry = _abi.CheckpointEntry()
            check(library.checkpoint_get_entry(self._handle, index, C.byref(entry)))
            entries.append(CheckpointEntry(entry.prefix.decode(), entry.number, entry.tensors, entry.bytes, entry.other_dtype.decode()))
        return entries

    def layer(self, layer: Union[int, str], *, tp: Tuple[int, int] = (0, 1), ep: Tuple[int, int] = (0, 1)) -> CheckpointLayer:
        """A layer by its number or prefix. tp, ep: (rank, size) of this process in its tensor- and expert-parallel groups."""
        for name, (rank, size) in (("tp", tp), ("ep", ep)):
            if size < 1:
                raise InvalidArgument(f"{name} = ({rank}, {size}): the size is at least 1")
        shard = _abi.Shard(tp_rank=tp[0], tp_size=tp[1], ep_rank=ep[0], ep_size=ep[1])
        handle = C.c_void_p()
        check(library.checkpoint_read(self._handle, str(layer).encode(), C.byref(shard), C.byref(handle)))
        return CheckpointLayer(handle)


class PackedLayer(_WithProblem):
    """One layer of a packed file. `view`: its bytes in host memory, mapped; copy them to the device and Engine.adopt them there."""

    def __init__(self, mapping: "_Mapping", c: _abi.PackedLayer) -> None:
        self.prefix, self.family = c.prefix.decode(), c.family.decode()
        self.first_expert, self.total_experts = c.first_expert, c.total_experts
        self._problem = _problem_of(c.problem.contents)
        self.view = View("packed", c.bytes, "u8", (c.byte_count,), (1,), CPU, 0, True, mapping)

    def memory(self) -> memoryview:
        """The bytes, read-only: torch.frombuffer and numpy.frombuffer take it."""
        buffer = (C.c_uint8 * self.view.bytes).from_address(self.view.pointer)
        buffer._owner = self.view.owner  # type: ignore[attr-defined]
        return memoryview(buffer).cast("B").toreadonly()


class _Mapping:
    """Keeps a packed file mapped, for it and for its layers."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self.handle = C.c_void_p()
        check(library.packed_open(os.fsencode(path), C.byref(self.handle)))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            library.packed_destroy(self.handle)


class PackedFile:
    """A file that ``w4moe pack`` wrote."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Maps the file and checks its headers."""
        mapping = _Mapping(path)
        self.layers: List[PackedLayer] = []
        for index in range(library.packed_count(mapping.handle)):
            layer = _abi.PackedLayer()
            check(library.packed_get_layer(mapping.handle, index, C.byref(layer)))
            self.layers.append(PackedLayer(mapping, layer))
