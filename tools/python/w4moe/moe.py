"""One layer, ready to run."""
from __future__ import annotations

import ctypes as C
import sys
from typing import Any, Optional

from . import _abi
from ._abi import library
from .checkpoint import CheckpointLayer
from .engine import Engine, PreparedWeights, Scratch, stream_handle
from .errors import Error, InvalidArgument, check
from .problem import Plan
from .tensors import Typed, View, is_torch, view_of
from .weights import Weights


_NO_ARGS = bytes(_abi.RunArgs())


class MoE:
    """A plan, one layer's weights and the model's scratch.

        engine = w4moe.Engine("cuda")
        plan = engine.plan(problem)                    # once a shape
        engine.build(plan)                             # cache, or NVRTC
        scratch = w4moe.Scratch(engine, plan)          # once a model
        layers = [w4moe.MoE(engine, plan, weights, scratch) for weights in checkpoint]
        out = layers[0].run(hidden, topk_ids, topk_weights)

    `run` allocates nothing (but the output, where none is given), and may be captured into a CUDA graph; the layer, its weights and the
    scratch must outlive the graph.
    """

    def __init__(self, engine: Engine, plan: Plan, weights: Any, scratch: Optional[Scratch] = None, *, first_expert: int = 0, expert_map: Any = None,
                 stream: Any = None) -> None:
        """weights: Weights or a layer of a Checkpoint (packed now), or PreparedWeights. scratch: None for one of its own.

        Expert parallelism: ids that run() gets are global. first_expert: this rank holds experts first_expert .. first_expert + E - 1; or
        expert_map: i32 [global experts] with the local number of each, -1 for those of other ranks, on the device of the ids. Experts of
        other ranks contribute nothing, so that the outputs of the ranks add up. A layer of a Checkpoint knows its first expert.
        """
        if first_expert and expert_map is not None:
            raise InvalidArgument("first_expert and expert_map are both given")
        self.engine = engine
        self.plan = plan
        packs = isinstance(weights, (Weights, CheckpointLayer))
        self.prepared = engine.prepare(plan, weights, stream=stream) if packs else weights
        if not isinstance(self.prepared, PreparedWeights):
            raise InvalidArgument(f"weights: {type(weights).__name__} (accepted: Weights, CheckpointLayer, PreparedWeights)")
        self.scratch = Scratch(engine, plan) if scratch is None else scratch
        self.first_expert = weights.first_expert if isinstance(weights, CheckpointLayer) and expert_map is None else first_expert
        self.expert_map = expert_map
        self._kind = "cpu" if engine.is_lockstep else "cuda"
        self._index = self.prepared.view.index
        self._handle = C.c_void_p()
        w, s = self.prepared.view, self.scratch.view
        with engine.context():
            check(library.bind(engine._handle, plan._handle, w.pointer, w.bytes, s.pointer, s.bytes, C.byref(self._handle)))
            self.scratch.initialise(self._handle, stream)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.binding_destroy(self._handle)

    def run(self, hidden: Any, topk_ids: Any, topk_weights: Any, out: Any = None, stream: Any = None) -> Any:
        """Enqueues the layer and returns `out`.

        hidden: [tokens, H] of the problem's dtype; topk_ids: i32 or i64 [tokens, topk], any values; topk_weights: f32 or bf16
        [tokens, topk]; out: [tokens, H] of the problem's dtype, or None for a new one like `hidden`; may be `hidden` itself. Rows may be
        strided, elements of a row lie side by side. stream: a handle or torch's or CuPy's stream; None: torch's current one where `hidden` is
        torch's, else the legacy default stream. InvalidArgument names the argument that is wrong; then nothing was launched.
        """
        if self.first_expert or self.expert_map is not None:
            topk_ids = local_ids(topk_ids, self.expert_map, self.first_expert)
        torch = sys.modules.get("torch")
        if torch is not None and type(hidden) is torch.Tensor:
            done = self._run_torch(torch, hidden, topk_ids, topk_weights, out, stream)
            if done is not None:
                return done
        if stream is None and is_torch(hidden) and hidden.is_cuda:
            stream = sys.modules["torch"].cuda.current_stream(hidden.device)
        x = self._matrix(hidden, "hidden", None, self.plan.problem.hidden, (self.plan.problem.dtype,))
        tokens = x.shape[0]
        ids = self._matrix(topk_ids, "topk_ids", tokens, self.plan.problem.topk, ("i32", "i64"))
        router = self._matrix(topk_weights, "topk_weights", tokens, self.plan.problem.topk, ("f32", "bf16"))
        if out is None:
            out = _empty_like(hidden)
        result = self._matrix(out, "out", tokens, self.plan.problem.hidden, (self.plan.problem.dtype,))
        if result.readonly:
            raise InvalidArgument(f"out: {result.describe()} is read-only")
        args = _abi.RunArgs(
            tokens=tokens, x=x.pointer, x_row_stride_elems=_row_stride(x), ids=ids.pointer, ids_row_stride_elems=_row_stride(ids),
            router_weights=router.pointer, router_row_stride_elems=_row_stride(router), out=result.pointer, out_row_stride_elems=_row_stride(result),
            id_type=_abi.IDS[ids.dtype], router_dtype=_abi.DTYPES[router.dtype],
        )  # fmt: skip
        self._launch(stream, args)
        return out

    __call__ = run

    def _run_torch(self, torch: Any, hidden: Any, topk_ids: Any, topk_weights: Any, out: Any, stream: Any) -> Any:
        """run() for plain torch tensors without building views, which takes a third of the time; None, and nothing done, for whatever is not in order: the
        other way says what that is."""
        tensor, problem = torch.Tensor, self.plan.problem
        if type(topk_ids) is not tensor or type(topk_weights) is not tensor or (out is not None and type(out) is not tensor):
            return None
        dtype, device = hidden.dtype, hidden.device
        id_type = 1 if topk_ids.dtype is torch.int32 else 2 if topk_ids.dtype is torch.int64 else 0
        router_dtype = 3 if topk_weights.dtype is torch.float32 else 1 if topk_weights.dtype is torch.bfloat16 else 0
        if dtype is not (torch.bfloat16 if problem.dtype == "bf16" else torch.float16) or not id_type or not router_dtype or hidden.dim() != 2:
            return None
        if device.type != self._kind or topk_ids.device != device or topk_weights.device != device or (self._kind == "cuda" and device.index != self._index):
            return None
        tokens, topk = hidden.shape[0], problem.topk
        if hidden.shape[1] != problem.hidden or topk_ids.shape != (tokens, topk) or topk_weights.shape != (tokens, topk):
            return None
        if out is None:
            out = torch.empty(hidden.shape, dtype=dtype, device=device)
        elif out.dtype is not dtype or out.device != device or out.shape != hidden.shape:
            return None
        x_row, ids_row, router_row, out_row = hidden.stride(), topk_ids.stride(), topk_weights.stride(), out.stride()
        if tokens == 0 or x_row[1] != 1 or out_row[1] != 1 or (topk > 1 and not ids_row[1] == router_row[1] == 1):
            return None
        args = _abi.RunArgs.from_buffer_copy(_NO_ARGS)
        args.tokens, args.id_type, args.router_dtype = tokens, id_type, router_dtype
        args.x, args.ids, args.router_weights, args.out = hidden.data_ptr(), topk_ids.data_ptr(), topk_weights.data_ptr(), out.data_ptr()
        if tokens > 1:  # the stride of a single row says nothing
            args.x_row_stride_elems, args.ids_row_stride_elems, args.router_row_stride_elems, args.out_row_stride_elems = x_row[0], ids_row[0], router_row[0], out_row[0]
        if stream is None and self._kind == "cuda":
            stream = torch.cuda.current_stream(device)
        self._launch(stream, args)
        return out

    def _launch(self, stream: Any, args: _abi.RunArgs) -> None:
        handle = stream_handle(stream)
        torch = sys.modules.get("torch")
        if handle is None and self._kind == "cuda" and torch is not None and torch.cuda.is_initialized() and torch.cuda.current_device() != self._index:
            with torch.cuda.device(self._index):  # R02: the default stream is that of the current context, which is to be this layer's
                check(library.run(self._handle, handle, C.byref(args)))
        else:
            check(library.run(self._handle, handle, C.byref(args)))

    def status(self) -> str:
        """What kernels recorded so far: "ok", or an Error is raised with what happened. Wait for the runs of interest first."""
        report = _abi.BindingReport()
        check(library.binding_get_status(self._handle, C.byref(report)))
        if report.code != 0:
            raise Error(report.text.decode())
        return report.text.decode()

    def _matrix(self, tensor: Any, name: str, rows: Optional[int], columns: int, dtypes: tuple) -> View:
        view = view_of(tensor, name)
        if view.dtype not in dtypes:
            raise InvalidArgument(f"{name}: {view.describe()}, expected {' or '.join(dtypes)}")
        if len(view.shape) != 2 or view.shape[1] != columns or (rows is not None and view.shape[0] != rows):
            raise InvalidArgument(f"{name}: {view.describe()}, expected shape [{'tokens' if rows is None else rows}, {columns}]")
        if view.strides[1] != 1 and columns > 1 and view.shape[0] > 0:
            raise InvalidArgument(f"{name}: elements of a row lie {view.strides[1]} apart, expected 1")
        self.engine.check_place(view)
        if view.on_gpu and view.index != self._index:
            raise InvalidArgument(f"{name}: {view.describe()}, expected memory of cuda:{self._index}, where the layer is")
        return view


def _row_stride(view: View) -> int:
    """In elements; 0 (dense rows) where there is at most one row, whose stride says nothing."""
    return view.strides[0] if view.shape[0] > 1 else 0


def _empty_like(hidden: Any) -> Any:
    if is_torch(hidden):
        return hidden.new_empty(hidden.shape)
    if isinstance(hidden, Typed):
        return Typed(_empty_like(hidden.array), hidden.dtype)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(hidden, numpy.ndarray):
        return numpy.empty(hidden.shape, hidden.dtype)
    raise InvalidArgument(f"out: None, and how to make one like {type(hidden).__name__} is not known; pass one")


def local_ids(topk_ids: Any, expert_map: Any = None, first_expert: int = 0) -> Any:
    """Global expert ids as this rank's: see MoE. For torch tensors (also in a capture and under torch.compile) and NumPy arrays.

    Whatever the ids are, an expert of another rank and no expert at all become numbers outside 0..E-1.
    """
    if expert_map is None:
        return topk_ids - first_expert if first_expert else topk_ids
    module: Any = sys.modules["torch"] if is_torch(topk_ids) else sys.modules.get("numpy")
    if module is None:
        raise InvalidArgument(f"topk_ids: {type(topk_ids).__name__} with an expert_map (accepted: torch tensors, NumPy arrays)")
    known = (topk_ids >= 0) & (topk_ids < expert_map.shape[0])
    index = module.where(known, topk_ids, 0)
    mapped = expert_map[index.long()] if is_torch(topk_ids) else expert_map[index]
    return module.where(known, mapped, -1)
