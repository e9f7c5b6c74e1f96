#!/usr/bin/env python3
"""Measures layers on both sides of every bucket boundary with nested routing: the tokens of m are the first m of m + 1, so that a run of
m tokens could be padded, and one that takes longer than m + 1 tokens do is a ladder cut in the wrong place.

    tools/bench/scan_crossovers.py --bench build/tools/bench/w4moe-bench --cli build/w4moe [--model gpt-oss-120b ...]

Needs a CUDA device and numpy. Exit status 3 where a boundary loses more than --noise. About a second a boundary once kernels are built.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def plan_of(cli, model, tokens, arch):
    out = subprocess.run([cli, "plan", "--model", model, "--max-tokens", str(tokens), "--arch", arch, "--json"], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def boundaries(plan):
    """Last token counts of all buckets but the last."""
    return [b["last_tokens"] for b in plan["buckets"][:-1]]


def write_nested_routing(folder, experts, topk, counts):
    """Random routing of the most tokens, and its first m tokens for each m."""
    import numpy as np

    rng = np.random.default_rng([experts, topk])
    scores = rng.random((max(counts), experts), dtype=np.float32)
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :topk].astype(np.int32)
    weights = rng.random((max(counts), topk), dtype=np.float32) + np.float32(0.1)
    weights = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    for m in counts:
        (folder / f"route_{experts}_{topk}_{m}.bin").write_bytes(ids[:m].tobytes() + weights[:m].tobytes())


def judge(ends, us, noise):
    """Lines of the report, and how many boundaries lose more than the noise."""
    lines, bad = [], 0
    for end in ends:
        loss = us[end] / us[end + 1] - 1
        bad += loss > noise
        lines.append(f"  m = {end:5} {us[end]:9.1f} us, m = {end + 1:5} {us[end + 1]:9.1f} us  {100 * loss:+6.1f} %{'  slower than the next' if loss > noise else ''}")
    return lines, bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="w4moe-bench")
    parser.add_argument("--cli", required=True, help="w4moe")
    parser.add_argument("--model", action="append", help="preset, repeatable (gpt-oss-120b and seed-case unless given)")
    parser.add_argument("--max-tokens", type=int, default=8192)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--noise", type=float, default=0.03)
    parser.add_argument("--json", help="file to write the measured rows to")
    args = parser.parse_args()
    total, rows = 0, []
    for model in args.model or ["gpt-oss-120b", "seed-case"]:
        plan = plan_of(args.cli, model, args.max_tokens, args.arch)
        ends = boundaries(plan)
        counts = sorted({m for end in ends for m in (end, end + 1)})
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write_nested_routing(folder, plan["problem"]["experts"], plan["problem"]["topk"], counts + [args.max_tokens])
            out = folder / "rows.json"
            # The last count makes the bench plan for as many tokens as the boundaries were asked for.
            tokens = ",".join(map(str, counts + ([] if args.max_tokens in counts else [args.max_tokens])))
            subprocess.run([args.bench, "--routing", name, "--tokens", tokens, "--json", str(out), model], check=True, stdout=subprocess.DEVNULL)
            measured = json.loads(out.read_text())["rows"]
        rows += measured
        lines, bad = judge(ends, {r["m"]: r["us_graph"] for r in measured}, args.noise)
        total += bad
        print(model, *lines, sep="\n", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    print(f"{total} boundaries lose more than {100 * args.noise:g} %")
    return 3 if total else 0


if __name__ == "__main__":
    sys.exit(main())
