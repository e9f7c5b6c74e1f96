"""The torch operator on CPU tensors and the lock-step device. Skipped without torch; tests/python_gpu has the same on a GPU."""
import gc

import numpy as np
import pytest
import w4moe

torch = pytest.importorskip("torch")
from w4moe import torch_ops  # noqa: E402


def torch_inputs(layer, tokens):
    x, ids, router, _ = layer.inputs(tokens)
    return torch.from_numpy(x.array.view(np.int16)).view(torch.bfloat16), torch.from_numpy(ids), torch.from_numpy(router)


def bits(out):
    return out.view(torch.int16).numpy().view(np.uint16)


def test_tensors_of_torch(moe, small):
    layer, _ = small
    x, ids, router, _ = layer.inputs(3)
    expected = moe.run(x, ids, router).array
    tx, tids, trouter = torch_inputs(layer, 3)
    out = moe.run(tx, tids, trouter)
    assert out.dtype == torch.bfloat16 and np.array_equal(bits(out), expected)
    assert np.array_equal(bits(moe.run(tx.clone().requires_grad_(), tids.long(), trouter)), expected)
    with pytest.raises(w4moe.InvalidArgument, match=r"hidden: f32 \[3, 128\] on cpu"):
        moe.run(tx.float(), tids, trouter)


def test_the_short_way_and_the_long_way_do_the_same(moe, small, monkeypatch):
    layer, _ = small
    wide = torch.zeros(4, 160, dtype=torch.bfloat16)
    cases = []
    for tokens in (1, 2, 4):
        x, ids, router = torch_inputs(layer, tokens)
        wide[:tokens, :128] = x
        target = torch.zeros(tokens, 144, dtype=torch.bfloat16)
        cases += [(x, ids, router, None), (wide[:tokens, :128], ids.long(), router.bfloat16(), target[:, :128]), (x.expand(tokens, 128), ids.repeat(1, 2)[:, :2], router, None)]
    calls = []
    short = moe._run_torch
    monkeypatch.setattr(moe, "_run_torch", lambda *args: calls.append(short(*args)) or calls[-1], raising=False)
    first = [moe.run(*case).clone() for case in cases]
    assert len(calls) == len(cases) and all(call is not None for call in calls)
    monkeypatch.setattr(moe, "_run_torch", lambda *args: None)
    for case, expected in zip(cases, first):
        assert torch.equal(moe.run(*case), expected)
    # What the short way does not take is refused by the long one, by name.
    monkeypatch.undo()
    x, ids, router = torch_inputs(layer, 2)
    for changed, part in [(dict(topk_ids=ids.short()), "topk_ids: i16"), (dict(topk_ids=ids[:1]), "topk_ids: i32 [1, 2]"), (dict(topk_weights=router.half()), "topk_weights: f16"),
                          (dict(hidden=x.half()), "hidden: f16"), (dict(hidden=x[:, ::2]), "hidden: bf16 [2, 64]"), (dict(out=x.float()), "out: f32"),
                          (dict(topk_ids=ids.T.contiguous().T), "topk_ids: elements of a row lie 2 apart"), (dict(topk_ids=ids.numpy().astype("u1")), "topk_ids: u8")]:  # fmt: skip
        with pytest.raises(w4moe.InvalidArgument) as raised:
            moe.run(**dict(dict(hidden=x, topk_ids=ids, topk_weights=router), **changed))
        assert str(raised.value).startswith(part), raised.value


def test_weights_of_torch(engine, small, moe):
    layer, plan = small
    matrices = {name: w4moe.Matrix(*(torch.from_numpy(part) if part is not None else None for part in vars(getattr(layer.weights, name)).values())) for name in ("gate_up", "down")}
    matrices["down"].scales = matrices["down"].scales.view(torch.float8_e8m0fnu)
    packed = engine.prepare(plan, w4moe.Weights("gate_first", **matrices))
    assert bytes(packed.view.owner) == bytes(moe.prepared.view.owner)


def test_operator_passes_torch_s_own_checks(moe, small):
    x, ids, router = torch_inputs(small[0], 3)
    number = torch_ops.register(moe)
    assert torch_ops.register(moe) == number
    torch.library.opcheck(torch_ops.moe, (x, ids, router, number))
    torch.library.opcheck(torch_ops.moe_out, (x, ids, router, torch.empty_like(x), number))
    wide = torch.zeros(3, 136, dtype=torch.bfloat16)
    torch_ops.moe_out(x, ids, router, wide[:, :128], number)
    assert torch.equal(wide[:, :128], torch_ops.moe(x, ids, router, number))
    assert not wide[:, 128:].any()


def test_compiled_as_one_graph_with_any_number_of_tokens(moe, small):
    experts = torch_ops.Experts(moe)

    def block(hidden, router, ids):
        return experts(hidden * 1.5, router, ids) + hidden

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=True)
    for tokens in (2, 3, 4):
        x, ids, router = torch_inputs(small[0], tokens)
        assert torch.equal(compiled(x, router, ids), block(x, router, ids))
    x, ids, router = torch_inputs(small[0], 4)
    assert experts(x.reshape(2, 2, 128), router, ids).shape == (2, 2, 128)


def test_a_layer_that_is_gone(engine, small):
    layer, plan = small
    number = torch_ops.register(w4moe.MoE(engine, plan, layer.weights))
    gc.collect()
    x, ids, router = torch_inputs(layer, 2)
    with pytest.raises(w4moe.InvalidArgument, match=f"layer {number} is not registered, or gone"):
        torch_ops.moe(x, ids, router, number)


def test_local_ids():
    ids = torch.tensor([[0, 3], [-1, 9], [2**31 - 1, -(2**31)]], dtype=torch.int32)
    table = torch.tensor([-1, -1, 0, 1], dtype=torch.int32)
    expected = [[-1, 1], [-1, -1], [-1, -1]]
    assert w4moe.local_ids(ids, table).tolist() == expected
    assert w4moe.local_ids(ids.numpy(), table.numpy()).tolist() == expected
    assert torch.compile(lambda i: w4moe.local_ids(i, table), fullgraph=True, backend="aot_eager")(ids).tolist() == expected
    assert w4moe.local_ids(ids, None, 2)[0].tolist() == [-2, 1]
