"""Layers on the lock-step device against the reference: E2."""
import os
import threading

import numpy as np
import pytest
import w4moe
from reference import BOUND, Layer, relative_rmse, small_problem as problem, values


@pytest.mark.parametrize("changes", [
    dict(format="nvfp4", dtype="f16"), dict(format="int4:g32:zp", activation="relu2"), dict(format="int4:g64:f16", dtype="f16"),
], ids=lambda changes: "-".join(map(str, changes.values())))  # fmt: skip
def test_N25_N26_formats(engine, changes):
    layer = Layer(problem(**changes))
    plan = engine.plan(layer.problem)
    seen = []
    report = engine.build(plan, progress=lambda kernel, hit, done, total: seen.append((kernel, done, total)))
    assert report.kernels == len(seen) == plan.kernels
    run = w4moe.MoE(engine, plan, layer.weights)
    for tokens in (1, 4):
        x, ids, router, exact = layer.inputs(tokens)
        out = run(x, ids, router)
        assert relative_rmse(out, layer.expected(exact, ids, router)) < BOUND[layer.problem.dtype]
    assert run.status() == "ok"


def test_tokens_and_types_of_routing(moe, small):
    """N27: every accepted pair of types gives the same bits; N12: no tokens."""
    layer, _ = small
    x, ids, router, exact = layer.inputs(3)
    router = np.float32([[0.5, 0.25]] * 3)  # exact in bf16
    first = values(moe.run(x, ids, router))
    assert relative_rmse(moe.run(x, ids, router), layer.expected(exact, ids, router)) < BOUND["bf16"]
    bits = w4moe.as_dtype((router.view(np.uint32) >> 16).astype(np.uint16), "bf16")
    for other_ids in (ids, ids.astype(np.int64)):
        for other_router in (router, bits):
            assert np.array_equal(values(moe.run(x, other_ids, other_router)), first)
    empty = w4moe.as_dtype(np.empty((0, 128), np.uint16), "bf16")
    assert moe.run(empty, np.empty((0, 2), np.int32), np.empty((0, 2), np.float32)).array.shape == (0, 128)


def test_rows_may_be_strided_and_out_may_be_given(moe, small):
    layer, _ = small
    x, ids, router, _ = layer.inputs(4)
    expected = moe.run(x, ids, router).array
    wide = np.zeros((4, 160), np.uint16)
    wide[:, :128] = x.array
    target = np.full((4, 144), 0xA5A5, np.uint16)
    out = w4moe.as_dtype(target[:, :128], "bf16")
    assert moe.run(w4moe.as_dtype(wide[:, :128], "bf16"), np.repeat(ids, 2, 0)[::2], router, out) is out
    assert np.array_equal(target[:, :128], expected)
    assert (target[:, 128:] == 0xA5A5).all()  # N06: columns beyond H are not touched
    moe.run(x, ids, router, x)  # in place
    assert np.array_equal(x.array, expected)


def test_weights_packed_on_the_cpu_are_the_same_bytes(engine, small, moe, tmp_path):
    layer, plan = small
    done = []
    packed = w4moe.pack_on_cpu(plan, layer.weights, on_expert_done=done.append)
    assert done == [0, 1, 2, 3]  # S14: each expert's tensors may go as soon as they are read
    assert bytes(packed) == bytes(moe.prepared.view.owner)
    file = tmp_path / "layer.w4moe"
    file.write_bytes(bytes(packed))
    memory = w4moe.HostMemory(plan.prepared_weight_bytes)
    memory.memory()[:] = file.read_bytes()
    again = w4moe.MoE(engine, plan, engine.adopt(plan, memory))
    x, ids, router, _ = layer.inputs(2)
    assert np.array_equal(again.run(x, ids, router).array, moe.run(x, ids, router).array)
    memory.memory()[0] ^= 1
    with pytest.raises(w4moe.InvalidArgument, match="does not hold prepared weights"):
        w4moe.MoE(engine, plan, engine.adopt(plan, memory))


def test_P3_one_scratch_serves_all_layers_of_a_model(engine, small):
    _, plan = small
    layers = [Layer(problem(bias=True), seed) for seed in range(3)]
    scratch = w4moe.Scratch(engine, plan)
    assert scratch.bytes == plan.scratch_bytes
    model = [w4moe.MoE(engine, plan, layer.weights, scratch) for layer in layers]
    x, ids, router, exact = layers[0].inputs(4)
    for layer, run in zip(layers, model):
        assert relative_rmse(run(x, ids, router), layer.expected(exact, ids, router)) < BOUND["bf16"]
    with pytest.raises(w4moe.InvalidArgument, match="scratch has 256 bytes"):
        w4moe.MoE(engine, plan, model[0].prepared, _scratch_of(engine, plan, 256))
    with pytest.raises(w4moe.InvalidArgument, match="memory: 256 bytes, the plans need"):
        w4moe.Scratch(engine, [plan], memory=w4moe.HostMemory(256))


def _scratch_of(engine, plan, count):
    scratch = w4moe.Scratch(engine, plan)
    scratch.view = w4moe.HostMemory(count).view("scratch")
    return scratch


def test_P3_a_cap_cuts_long_runs_into_chunks(engine):
    shape = problem(max_tokens=4096)
    whole = engine.plan(shape)
    capped = engine.plan(shape, scratch_cap_bytes=whole.scratch_bytes // 4)
    assert capped.scratch_bytes <= whole.scratch_bytes // 4
    assert capped.chunk_tokens < whole.chunk_tokens == 4096
    with pytest.raises(w4moe.Error, match="cap"):
        engine.plan(shape, scratch_cap_bytes=1)


def test_N09_N18_ranks_of_experts_add_up(engine, small, moe):
    """Two ranks of two experts each: partial outputs add up to the whole layer's, each expert's biases counted once."""
    layer, _ = small
    x, ids, router, exact = layer.inputs(4)
    ids[3] = (-1, 2**31 - 1)  # no expert of anybody
    part = problem(bias=True, experts=2)
    plan = engine.plan(part)
    engine.build(plan)
    total = np.zeros((4, 128))
    for rank in range(2):
        mine = slice(2 * rank, 2 * rank + 2)
        weights = w4moe.Weights("gate_first")
        for name in ("gate_up", "down"):
            matrix = getattr(layer.weights, name)
            setattr(weights, name, w4moe.Matrix(matrix.codes[mine], matrix.scales[mine], bias=matrix.bias[mine]))
        by_first = w4moe.MoE(engine, plan, weights, first_expert=2 * rank)
        table = np.full(4, -1, np.int32)
        table[mine] = (0, 1)
        by_map = w4moe.MoE(engine, plan, by_first.prepared, expert_map=table)
        out = by_first.run(x, ids, router)
        assert np.array_equal(out.array, by_map.run(x, ids, router).array)
        total += values(out)
    expected = layer.expected(exact, ids, router)
    assert np.sqrt(((total - expected) ** 2).sum() / (expected**2).sum()) < BOUND["bf16"]
    assert not values(moe.run(x, ids, router))[3].any()


def test_N18_ranks_of_features_add_up_with_one_output_bias(engine):
    """Tensor parallelism: two ranks hold half of I each, and one of them the bias of `down`."""
    layer = Layer(problem(bias=True, intermediate=128))
    x, ids, router, exact = layer.inputs(3)
    plan = engine.plan(problem(bias=True))
    total = np.zeros((3, 128))
    for rank in range(2):
        rows = slice(64 * rank, 64 * rank + 64)
        up = slice(128 + 64 * rank, 128 + 64 * rank + 64)
        first, down = layer.weights.gate_up, layer.weights.down
        weights = w4moe.Weights("separate", output_bias=rank == 0)
        weights.gate = w4moe.Matrix(first.codes[:, rows], first.scales[:, rows], bias=first.bias[:, rows])
        weights.up = w4moe.Matrix(first.codes[:, up], first.scales[:, up], bias=first.bias[:, up])
        weights.down = w4moe.Matrix(down.codes[..., 32 * rank : 32 * rank + 32], down.scales[..., 2 * rank : 2 * rank + 2], bias=down.bias if rank == 0 else None)
        engine.build(plan)
        total += values(w4moe.MoE(engine, plan, weights).run(x, ids, router))
    expected = layer.expected(exact, ids, router)
    assert np.sqrt(((total - expected) ** 2).sum() / (expected**2).sum()) < BOUND["bf16"]


def test_gpt_oss_blocks(engine, small, moe):
    layer, plan = small
    first, down = layer.weights.gate_up, layer.weights.down

    def interleaved(rows):
        return np.ascontiguousarray(np.stack([rows[:, :64], rows[:, 64:]], 2).reshape(rows.shape))

    weights = w4moe.Weights.gpt_oss(interleaved(first.codes).reshape(4, 128, 4, 16), interleaved(first.scales), down.codes.reshape(4, 128, 2, 16), down.scales,
                                    interleaved(first.bias), down.bias)
    x, ids, router, _ = layer.inputs(2)
    assert np.array_equal(w4moe.MoE(engine, plan, weights).run(x, ids, router).array, moe.run(x, ids, router).array)


def test_threads_with_scratch_of_their_own(engine, small):
    layer, plan = small
    x, ids, router, _ = layer.inputs(2)
    outs = []
    runs = [w4moe.MoE(engine, plan, layer.weights) for _ in range(4)]
    threads = [threading.Thread(target=lambda run=run: outs.append(run(x, ids, router).array)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outs) == 4 and all(np.array_equal(out, outs[0]) for out in outs)


def test_documented_figures_of_a_plan(engine):
    plan = w4moe.Plan(problem(max_tokens=64), arch="sm_90a")
    assert plan.arch == "sm_90a" and plan.sms == 132
    assert plan.json()["scratch_bytes"] == plan.scratch_bytes
    assert "fc1" in plan.explain()
    assert plan.launches(0) == "none"
    assert "combine" in plan.launches(64)
    with pytest.raises(w4moe.InvalidArgument, match="tokens = 65"):
        plan.launches(65)
    if os.environ.get("W4MOE_TEST_WHEEL"):
        assert os.path.dirname(w4moe.__file__).endswith(os.path.join("site-packages", "w4moe"))  # the wheel's
