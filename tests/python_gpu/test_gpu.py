"""The Python package with torch on a GPU. Plain functions: tests/python_gpu/run.py runs them with or without pytest.

W4MOE_TEST_DEVICE=lockstep runs those that need no CUDA on the CPU, at a smaller size.
"""
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading

import torch
import w4moe
from layers import ROW_BOUND, Layer, part_of, worst_row
from support import CUDA, DEVICE, EXAMPLES, HOST_ENVIRONMENT, ROOT, needs_cuda, needs_gpus, shape, skip
from w4moe import torch_ops

ENGINE = w4moe.Engine(DEVICE)
PLACE = "cuda" if CUDA else "cpu"


def built(problem, engine=ENGINE):
    plan = engine.plan(problem)
    engine.build(plan)
    return plan


def layer_of(problem, seed=0, scratch=None, **where):
    layer = Layer(problem, seed, PLACE, **where)
    return layer, w4moe.MoE(ENGINE, built(problem), layer.weights, scratch)


def requested_bytes():
    """Device memory that the process has asked torch for, without the allocator's rounding."""
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


def sync():
    if CUDA:
        torch.cuda.synchronize()


def test_every_format_against_a_plain_reference():
    cases = [("mxfp4", "bf16"), ("mxfp4", "f16"), ("nvfp4", "bf16"), ("nvfp4", "f16"), ("int4:g32", "bf16"), ("int4:g64:f16", "f16"), ("int4:g128:zp", "bf16"), ("int4:row", "bf16")]
    for format_, dtype in cases if CUDA else cases[:1]:
        for bias in (False, True) if CUDA else (True,):
            layer, moe = layer_of(shape(format=format_, dtype=dtype, bias=bias))
            for tokens in (1, 7, 64) if CUDA else (1, 3):
                x, ids, router = layer.inputs(tokens)
                error = worst_row(moe.run(x, ids, router), layer.expected(x, ids, router))
                assert error < ROW_BOUND[dtype] * (1 if CUDA else 2), (format_, dtype, bias, tokens, error)  # the CPU's layer is smaller than the contract's
            assert moe.status() == "ok"


def test_N27_types_of_routing_give_the_same_bits():
    layer, moe = layer_of(shape())
    x, ids, router = layer.inputs(3)
    router = router.bfloat16().float()
    first = moe.run(x, ids, router)
    for other_ids in (ids, ids.long()):
        for other in (router, router.bfloat16()):
            assert torch.equal(moe.run(x, other_ids, other), first)
    for bad, part in ((dict(topk_ids=ids.short()), "topk_ids"), (dict(topk_weights=router.half()), "topk_weights"), (dict(hidden=x.float()), "hidden")):
        try:
            moe.run(**dict(dict(hidden=x, topk_ids=ids, topk_weights=router), **bad))
            raise AssertionError(f"{part} was not refused")
        except w4moe.InvalidArgument as error:
            assert str(error).startswith(part), error


def test_packing_on_the_gpu_and_on_the_cpu_gives_the_same_bytes():
    for format_ in ("mxfp4", "nvfp4", "int4:g64:zp") if CUDA else ("mxfp4",):
        problem = shape(format=format_, bias=True)
        plan = built(problem)
        from_host = Layer(problem, 3, PLACE, weights_on="cpu")
        on_cpu = bytes(w4moe.pack_on_cpu(plan, from_host.weights))
        if not CUDA:
            continue
        from_device = Layer(problem, 3, PLACE)
        for layer in (from_host, from_device):
            prepared = ENGINE.prepare(plan, layer.weights).view.owner
            assert bytes(prepared.cpu().tolist()) == on_cpu, format_


def test_S14_sources_may_be_freed_after_packing():
    problem = shape(bias=True)
    layer, moe = layer_of(problem)
    x, ids, router = layer.inputs(5 if CUDA else 3)
    expected = moe.run(x, ids, router)
    for matrix in (layer.weights.gate_up, layer.weights.down):
        for part in (matrix.codes, matrix.scales, matrix.bias):
            part.view(torch.uint8).fill_(0xFF)
    assert torch.equal(moe.run(x, ids, router), expected)


def test_graph_capture_and_replay():
    needs_cuda()
    layer, moe = layer_of(shape())
    x, ids, router = layer.inputs(8)
    out = torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # global mode, the strictest
        moe.run(x, ids, router, out)
        through_operator = torch.ops.w4moe.moe(x, ids, router, torch_ops.register(moe))
    for seed in range(100):
        other = layer.inputs(8, seed)
        if seed % 10 == 9:
            other[1].fill_(seed // 10 - 1)  # all routes to one expert, or to none
        for to, from_ in zip((x, ids, router), other):
            to.copy_(from_)
        graph.replay()
        eager = moe.run(*other)
        assert torch.equal(out, eager) and torch.equal(through_operator, eager), seed
    assert moe.status() == "ok"


def test_R06_an_unbuilt_plan_in_a_capture_is_refused_and_the_capture_goes_on():
    needs_cuda()
    layer, moe = layer_of(shape())
    x, ids, router = layer.inputs(4)
    out = torch.empty_like(x)
    late = ENGINE.plan(shape(hidden=640))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        try:
            ENGINE.build(late, stream=torch.cuda.current_stream())
            raise AssertionError("built in a capture")
        except w4moe.NotPrepared:
            pass
        moe.run(x, ids, router, out)
    graph.replay()
    assert torch.equal(out, moe.run(x, ids, router))


def test_compiled_as_one_graph():
    layer, moe = layer_of(shape())
    experts = torch_ops.Experts(moe)

    def block(hidden, router, ids):
        return experts(hidden * 1.5, router, ids) + hidden

    ways = [dict(backend="aot_eager")]
    if CUDA and importlib.util.find_spec("triton") and (shutil.which("cc") or shutil.which("gcc")):
        ways += [dict(), dict(mode="reduce-overhead")]  # inductor needs both
    for way in ways:
        torch._dynamo.reset()
        compiled = torch.compile(block, fullgraph=True, **way)
        for tokens in (4, 2, 3, 4, 4, 4):
            x, ids, router = layer.inputs(tokens, tokens)
            # A fused x * 1.5 may be rounded once more or less than eager's.
            result = compiled(x, router, ids).clone()
            error = worst_row(result, x.double() + layer.expected(x * 1.5, ids, router))
            assert error < 1e-2, (way, tokens, error)
    torch.library.opcheck(torch_ops.moe, (*layer.inputs(3), torch_ops.register(moe)))


def test_P3_ninety_four_layers_in_one_graph_with_one_scratch():
    problem = w4moe.Problem(1024, 256, 32, 4, 64, bias=True, name="model") if CUDA else shape(bias=True)
    count = 94 if CUDA else 3
    plan = built(problem)
    sources = [Layer(problem, seed, PLACE, weights_on="cpu", values=False).weights for seed in range(count)]
    sync()
    if CUDA:
        torch.cuda.empty_cache()
        before, free_before = requested_bytes(), torch.cuda.mem_get_info()[0]
    scratch = w4moe.Scratch(ENGINE, plan)
    model = [w4moe.MoE(ENGINE, plan, weights, scratch) for weights in sources]
    sync()
    if CUDA:
        expected = count * plan.prepared_weight_bytes + plan.scratch_bytes
        rise = requested_bytes() - before
        assert rise == expected, (rise, expected)
        torch.cuda.empty_cache()
        driver_rise = free_before - torch.cuda.mem_get_info()[0]
        # The allocator takes whole blocks of 2 MiB; kernels of the packer were loaded.
        assert driver_rise < expected + (count + 1) * (2 << 20) + (128 << 20), (driver_rise, expected)
        print(f"    {count} layers: {rise / 2**20:.1f} MiB by torch's count, {driver_rise / 2**20:.1f} MiB by the driver's; weights and one scratch are {expected / 2**20:.1f} MiB")
    probe = Layer(problem, 0, PLACE, values=False)
    tokens = 16 if CUDA else 3
    inputs = [probe.inputs(tokens, seed) for seed in range(count)]
    state = torch.zeros_like(inputs[0][0])

    def forward(x):
        for moe, (_, ids, router) in zip(model, inputs):
            out = moe.run(torch.nn.functional.rms_norm(x, (problem.hidden,)), ids, router)
            x = x + torch.nn.functional.rms_norm(out, (problem.hidden,))
        return x

    for seed in range(3):
        start, _, _ = probe.inputs(tokens, 100 + seed)
        # Layer by layer, each with a scratch of its own and waited for.
        x = start
        for moe, (_, ids, router) in zip(model, inputs):
            alone = w4moe.MoE(ENGINE, plan, moe.prepared)
            out = alone.run(torch.nn.functional.rms_norm(x, (problem.hidden,)), ids, router)
            sync()
            x = x + torch.nn.functional.rms_norm(out, (problem.hidden,))
        assert torch.isfinite(x.float()).all()
        if not CUDA:
            assert torch.equal(forward(start), x)
            continue
        if seed == 0:
            state.copy_(start)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = forward(state)
        state.copy_(start)
        graph.replay()
        assert torch.equal(result, x), seed


def test_N09_N18_ranks_of_experts_add_up_and_biases_count_once():
    ranks, held = (4, 8) if CUDA else (2, 2)
    problem = shape(bias=True, experts=ranks * held)
    layer = Layer(problem, 0, PLACE)
    x, ids, router = layer.inputs(9 if CUDA else 3)
    ids[0, 0], ids[1, 1] = -1, 2**31 - 1
    ids[2] = -(2**31)
    plan = built(shape(bias=True, experts=held))
    scratch = w4moe.Scratch(ENGINE, plan)
    total = torch.zeros(x.shape, dtype=torch.float64, device=PLACE)
    for rank in range(ranks):
        mine = slice(rank * held, rank * held + held)
        moe = w4moe.MoE(ENGINE, plan, part_of(layer.weights, mine), scratch, first_expert=rank * held)
        table = torch.full((ranks * held,), -1, dtype=torch.int32, device=PLACE)
        table[mine] = torch.arange(held, dtype=torch.int32, device=PLACE)
        by_map = w4moe.MoE(ENGINE, plan, moe.prepared, scratch, expert_map=table)
        out = moe.run(x, ids, router)
        assert torch.equal(out, by_map.run(x, ids, router))
        assert torch.equal(out, moe.run(x, ids.long(), router))
        total += out.double()
    expected = layer.expected(x, ids, router)
    assert not total[2].any()
    assert worst_row(total, expected) < 2 * ROW_BOUND["bf16"]  # each rank rounds its part


def test_R08_the_current_stream_is_the_one():
    needs_cuda()
    layer, moe = layer_of(shape())
    x, ids, router = layer.inputs(16)
    expected = moe.run(x, ids, router)
    sync()
    side = torch.cuda.Stream()  # a non-blocking one
    for explicit in (False, True):
        late, out = torch.zeros_like(x), torch.zeros_like(x)
        sync()
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            late.copy_(x)
            moe.run(late, ids, router, out, stream=side if explicit else None)
            copy = out.clone()
        side.synchronize()
        assert torch.equal(copy, expected), explicit


def test_S08_two_threads_two_streams_two_scratches():
    needs_cuda()
    layer, first = layer_of(shape())
    second = w4moe.MoE(ENGINE, first.plan, first.prepared)
    sizes = (1, 3, 8, 17, 33, 64)
    inputs = {m: layer.inputs(m, m) for m in sizes}
    expected = {m: first.run(*inputs[m]) for m in sizes}
    sync()
    faults = []

    def soak(moe, shift):
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(3000):
                m = sizes[(i * 7 + shift) % len(sizes)]
                out = moe.run(*inputs[m])
                if i % 50 == 0 and not torch.equal(out, expected[m]):
                    faults.append((shift, i, m))
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=soak, args=(moe, shift)) for shift, moe in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert first.status() == second.status() == "ok"


def test_R01_R02_another_device_than_the_current_one():
    needs_gpus(2)
    problem = shape()
    outs = []
    models = []
    for index in range(2):
        engine = w4moe.Engine(f"cuda:{index}")
        plan = built(problem, engine)
        layer = Layer(problem, 0, f"cuda:{index}")
        models.append((layer, w4moe.MoE(engine, plan, layer.weights)))
    torch.cuda.set_device(0)
    for _ in range(3):
        for layer, moe in models:
            outs.append(moe.run(*layer.inputs(5)).cpu())
    assert torch.cuda.current_device() == 0
    assert all(torch.equal(out, outs[0]) for out in outs)
    x, ids, router = models[0][0].inputs(5)
    try:
        models[1][1].run(x, ids, router)
        raise AssertionError("memory of cuda:0 was taken by an engine of cuda:1")
    except w4moe.InvalidArgument as error:
        assert "cuda:0" in str(error)


FORK = """
import os, sys
import w4moe
problem = w4moe.Problem(512, 256, 8, 2, 16)
engine = w4moe.Engine("cuda:0")
assert w4moe.Plan(problem, arch="sm_90a").scratch_bytes > 0
child = os.fork()
if child == 0:
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[-1]
    import torch
    from layers import Layer
    torch.cuda.init()
    plan = engine.plan(problem)
    engine.build(plan)
    layer = Layer(problem)
    out = w4moe.MoE(engine, plan, layer.weights).run(*layer.inputs(3))
    torch.cuda.synchronize()
    os._exit(0 if torch.isfinite(out.float()).all() else 1)
sys.exit(0 if os.waitpid(child, 0)[1] == 0 else 1)
"""


def test_R04_fork_and_late_device_choice():
    needs_cuda()
    result = subprocess.run([sys.executable, "-c", FORK], env=HOST_ENVIRONMENT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_experts_class_in_the_form_of_engines():
    sys.path.insert(0, EXAMPLES)
    from vllm_experts import ParallelConfig, W4MoEMethod

    problem = shape(bias=True)
    layer = Layer(problem, 0, PLACE)
    method = W4MoEMethod(ENGINE, ParallelConfig())
    modules = [torch.nn.Module(), torch.nn.Module()]
    for module in modules:
        method.create_weights(module, problem.experts, problem.hidden, problem.intermediate, problem.topk, problem.max_tokens, bias=True, device=PLACE)
        for name, matrix in (("w13", layer.weights.gate_up), ("w2", layer.weights.down)):
            getattr(module, name + "_weight").copy_(matrix.codes)
            getattr(module, name + "_weight_scale").copy_(matrix.scales)
            getattr(module, name + "_bias").copy_(matrix.bias)
        method.process_weights_after_loading(module)
        assert not list(module.parameters())  # the source is gone: no second copy
    x, ids, router = layer.inputs(3)
    expected = w4moe.MoE(ENGINE, method.plan, layer.weights).run(x, ids, router)
    for module in modules:
        assert torch.equal(method.apply(module, x, router, ids), expected)
    assert len(method.plans) == 1 and modules[0].experts.layer.scratch is modules[1].experts.layer.scratch


def test_expert_parallel_sample_over_processes():
    try:
        import torch.distributed as distributed
    except ImportError:
        skip("no torch.distributed")
    if not distributed.is_available() or (CUDA and not distributed.is_nccl_available()):
        skip("this torch has no backend for it")
    ranks = min(torch.cuda.device_count(), 8) if CUDA else 2
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", os.path.join(EXAMPLES, "expert_parallel.py"), "--check"]
    if not CUDA:
        command += ["--device=lockstep", "--hidden=128", "--intermediate=64", "--experts=4", "--topk=2", "--tokens=3"]
    result = subprocess.run(command, env=HOST_ENVIRONMENT, capture_output=True, text=True, check=False, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    print("    " + result.stdout.strip().splitlines()[-1])


def test_examples_of_the_documentation():
    needs_cuda()
    with open(os.path.join(ROOT, "docs", "python.md"), encoding="utf-8") as file:
        (text,) = re.findall(r"^```python gpu\n(.*?)^```$", file.read(), re.M | re.S)
    exec(compile(text, "docs/python.md", "exec"), {})
