"""Checkpoints of every family, made by tests/checkpoints, through the package: J6, R2."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import w4moe
from reference import from_bf16, to_bf16, values

MAKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checkpoints", "make_checkpoints.py")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("checkpoints")
    subprocess.run([sys.executable, MAKER, made], check=True)
    return made


def expected_tensors(path):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    begin = 8 + length
    return {name: np.frombuffer(content[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]], np.float32).reshape(entry["shape"]).astype(np.float64)
            for name, entry in header.items() if name != "__metadata__"}


def swiglu_oai_layer(tensors, prefix, x, ids, router):
    out = np.zeros_like(x)
    for t in range(x.shape[0]):
        for e, weight in zip(ids[t], router[t]):
            gate = np.minimum(tensors[prefix + "gate"][e] @ x[t] + tensors[prefix + "gate_bias"][e], 7)
            up = np.clip(tensors[prefix + "up"][e] @ x[t] + tensors[prefix + "up_bias"][e], -7, 7)
            h = gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
            out[t] += weight * (tensors[prefix + "down"][e] @ h + tensors[prefix + "down_bias"][e])
    return out


def test_a_layer_of_gpt_oss_whole_and_shared_by_ranks(engine, folder):
    checkpoint = w4moe.Checkpoint(folder / "gpt-oss")
    assert [entry.number for entry in checkpoint.layers] == [0, 1]
    assert all(entry.bytes > 0 and entry.other_dtype == "" for entry in checkpoint.layers)
    layer = checkpoint.layer(1)
    del checkpoint  # the layer keeps its files
    problem = layer.problem(max_tokens=4)
    assert (layer.family, layer.total_experts, problem.topk, problem.activation, problem.bias) == ("gpt-oss", 4, 2, "swiglu-oai", True)
    rng = np.random.default_rng(3)
    bits = to_bf16(rng.normal(size=(3, problem.hidden)))
    x, ids, router = w4moe.as_dtype(bits, "bf16"), np.array([[0, 3], [2, 1], [3, 2]], np.int32), np.float32([[0.75, 0.25]] * 3)
    expected = swiglu_oai_layer(expected_tensors(folder / "gpt-oss.expected.safetensors"), layer.prefix, from_bf16(bits), ids, router)

    def close(out):
        return np.sqrt(((out - expected) ** 2).sum() / (expected**2).sum()) < 4e-3

    plan = engine.plan(problem)
    engine.build(plan)
    assert close(values(w4moe.MoE(engine, plan, layer).run(x, ids, router)))
    total = 0
    for rank in range(2):
        part = w4moe.Checkpoint(folder / "gpt-oss").layer(layer.prefix, ep=(rank, 2))
        assert (part.first_expert, part.problem(4).experts) == (2 * rank, 2)
        rank_plan = engine.plan(part.problem(4))
        engine.build(rank_plan)
        total = total + values(w4moe.MoE(engine, rank_plan, part).run(x, ids, router))
    assert close(total)


def test_every_family_is_read_and_packed(folder):
    seen = set()
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            continue
        checkpoint = w4moe.Checkpoint(folder / name)
        for entry in checkpoint.layers:
            if entry.other_dtype:
                continue
            layer = checkpoint.layer(entry.prefix)
            plan = w4moe.Plan(layer.problem(max_tokens=16), arch="sm_90a")
            packed = w4moe.pack_on_cpu(plan, layer)
            assert packed.bytes == plan.prepared_weight_bytes
            assert w4moe.recommended_format(layer.problem(max_tokens=1), layer) == layer.problem(1).format
            seen.add(layer.family)
    assert seen >= {"gpt-oss", "modelopt", "compressed-tensors", "awq", "gptq", "mxfp4 per expert"}, seen


def test_what_is_refused(folder, tmp_path):
    with pytest.raises(w4moe.Error, match="nowhere"):
        w4moe.Checkpoint(tmp_path / "nowhere")
    checkpoint = w4moe.Checkpoint(folder / "gpt-oss")
    with pytest.raises(w4moe.InvalidArgument, match="99"):
        checkpoint.layer(99)
    with pytest.raises(w4moe.InvalidArgument, match="tp"):
        checkpoint.layer(0, tp=(2, 2))
    with pytest.raises(w4moe.InvalidArgument, match=r"ep = \(0, 0\)"):
        checkpoint.layer(0, ep=(0, 0))
    with pytest.raises(w4moe.Error, match="3"):
        checkpoint.layer(0, ep=(0, 3))
    with pytest.raises(w4moe.Error):
        w4moe.PackedFile(folder / "gpt-oss.expected.safetensors")


def test_packed_files(engine, folder, tmp_path):
    tool = os.environ.get("W4MOE_CLI")
    if not tool:
        pytest.skip("built without the command line")
    subprocess.run([tool, "pack", folder / "gpt-oss", "--out", tmp_path / "all.safetensors"], check=True, capture_output=True)
    layers = w4moe.PackedFile(tmp_path / "all.safetensors").layers
    whole = w4moe.Checkpoint(folder / "gpt-oss")
    for packed in layers:
        problem = packed.problem(max_tokens=4)
        plan = w4moe.Plan(problem, arch="sm_90a")
        assert packed.view.bytes == plan.prepared_weight_bytes
        assert bytes(packed.memory()) == bytes(w4moe.pack_on_cpu(plan, whole.layer(packed.prefix)))
        with pytest.raises(TypeError):
            packed.memory()[0] = 1
    assert [layer.prefix for layer in layers] == [entry.prefix for entry in whole.layers]
