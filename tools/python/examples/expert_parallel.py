"""Expert parallelism over any number of GPUs: each rank holds a part of the experts, all see the same tokens, outputs are added up.

    torchrun --standalone --nproc-per-node=4 tools/python/examples/expert_parallel.py --check

NCCL on GPUs; with --device=lockstep the ranks are CPU processes over gloo. --check compares with all experts on one rank.
"""
import argparse
import os
import sys

import torch
import torch.distributed as dist
import w4moe


def make_weights(args: argparse.Namespace, device: str) -> w4moe.Weights:
    """A made-up MXFP4 layer with biases: the same on every rank."""
    rng = torch.Generator().manual_seed(7)

    def matrix(rows: int, k: int) -> w4moe.Matrix:
        codes = torch.randint(0, 256, (args.experts, rows, k // 2), dtype=torch.uint8, generator=rng)
        scales = torch.randint(118, 122, (args.experts, rows, k // 32), dtype=torch.uint8, generator=rng)
        return w4moe.Matrix(codes.to(device), scales.to(device), bias=torch.randn(args.experts, rows, generator=rng).to(device))

    return w4moe.Weights("gate_first", gate_up=matrix(2 * args.intermediate, args.hidden), down=matrix(args.hidden, args.intermediate))


def part(matrix: w4moe.Matrix, mine: slice) -> w4moe.Matrix:
    return w4moe.Matrix(matrix.codes[mine], matrix.scales[mine], bias=matrix.bias[mine])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "lockstep"), default="cuda")
    for name, value in (("hidden", 1024), ("intermediate", 512), ("experts", 32), ("topk", 4), ("tokens", 16)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    gpu = args.device == "cuda"
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if gpu:
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if args.experts % ranks != 0:
        raise SystemExit(f"{args.experts} experts cannot be shared by {ranks} ranks")
    device = f"cuda:{local_rank}" if gpu else "cpu"
    engine = w4moe.Engine(device if gpu else "lockstep")

    def layer(experts: slice) -> w4moe.MoE:
        problem = w4moe.Problem(args.hidden, args.intermediate, experts.stop - experts.start, args.topk, args.tokens, bias=True)
        plan = engine.plan(problem)
        engine.build(plan)
        weights = w4moe.Weights("gate_first", gate_up=part(whole.gate_up, experts), down=part(whole.down, experts))
        return w4moe.MoE(engine, plan, weights, first_expert=experts.start)

    whole = make_weights(args, device)
    held = args.experts // ranks
    moe = layer(slice(rank * held, rank * held + held))

    rng = torch.Generator().manual_seed(1)
    x = torch.randn(args.tokens, args.hidden, generator=rng).bfloat16().to(device)
    logits = torch.randn(args.tokens, args.experts, generator=rng).to(device)
    router, ids = logits.softmax(-1).topk(args.topk, -1)
    out = moe.run(x, ids, router).float()
    dist.all_reduce(out)
    status = 0
    if args.check:
        expected = layer(slice(0, args.experts)).run(x, ids, router).float()
        error = float(((out - expected).square().sum() / expected.square().sum()).sqrt())
        status = 0 if error < 8e-3 else 1
        if rank == 0:
            print(f"{ranks} ranks on {args.device}: relative RMSE {error:.2e} against all experts on one rank")
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    sys.exit(main())
