#!/usr/bin/env python3
"""Figures of docs/benchmarks/cache.md: cold builds of every preset, cache sizes, and the host-side costs of tests/bench/host_bench.cpp.

usage: cache_bench.py BUILD_FOLDER [--max-tokens N] [--jobs N] [--json FILE]
Prints a Markdown table. Needs NVRTC, no GPU. Takes some minutes; the machine should have nothing else to do, and the load is printed.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile


def run(*command, **kwargs):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, **kwargs).stdout)


def cold_build(tool, model, tokens, jobs, folder):
    # max_tokens is the only number that is not the preset's; each model starts from an empty cache.
    return run(tool, "build", "--model", model, "--max-tokens", str(tokens), "--arch", "sm_90a", "--cache-dir", folder, "-j", str(jobs), "-q", "--json")


def entry_bytes(tool, folder):
    return run(tool, "cache", "stats", "--cache-dir", folder, "--json")["bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json")
    options = parser.parse_args()
    tool = os.path.join(options.build, "w4moe")
    bench = os.path.join(options.build, "tests", "bench", "w4moe_host_bench")
    load_before = os.getloadavg()[0]
    work = tempfile.mkdtemp(prefix="w4moe-bench-")
    try:
        merged = os.path.join(work, "all")
        doctor = run(tool, "doctor", "--json")
        rows = []
        host = {row["model"]: row for row in run(bench)["rows"]}
        for model in host:
            folder = os.path.join(work, model)
            decode = cold_build(tool, model, 1, options.jobs, folder + "-1")
            before = os.times()
            report = cold_build(tool, model, options.max_tokens, options.jobs, folder)
            after = os.times()
            processor_s = after.children_user + after.children_system - before.children_user - before.children_system
            times = [k["compile_ms"] for k in report["kernels"]]
            rows.append({"model": model, "kernels": len(times), "seconds": report["seconds"], "decode_seconds": decode["seconds"], "decode_kernels": len(decode["kernels"]),
                         "median_ms": statistics.median(times), "max_ms": max(times), "processor_s": processor_s, "bytes": entry_bytes(tool, folder)})
            run(tool, "cache", "import", folder, "--cache-dir", merged, "--json")
        host = {row["model"]: row for row in run(bench, merged)["rows"]}
        for row in rows:
            row.update({name: host[row["model"]][name] for name in ("plan_us", "warm_load_us_per_kernel", "run_us")})
        distinct = run(tool, "cache", "stats", "--cache-dir", merged, "--json")
        document = {"schema": "w4moe.cache_bench/1", "nvrtc": doctor["nvrtc"]["build"], "processors": doctor["machine"]["processors"], "jobs": options.jobs,
                    "max_tokens": options.max_tokens, "load_before": load_before, "distinct_kernels": distinct["entries"], "distinct_bytes": distinct["bytes"], "rows": rows}
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
    print(f"NVRTC {document['nvrtc']}, {document['processors']} processors, -j {options.jobs}, load before {load_before:.2f}; all models together: "
          f"{document['distinct_kernels']} kernels, {document['distinct_bytes'] / 1e6:.2f} MB\n")
    print("| model | kernels | cold build, s | of processor time, s | 1 token only, s | median ms a kernel | largest ms | cache, KB | plan, us | warm load, us a kernel | run, us: m = 1 / 64 / "
          f"{options.max_tokens} |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for r in rows:
        runs = " / ".join(f"{r['run_us'][m]:.2f}" for m in r["run_us"])
        print(f"| {r['model']} | {r['kernels']} | {r['seconds']:.1f} | {r['processor_s']:.1f} | {r['decode_seconds']:.1f} | {r['median_ms']:.0f} | {r['max_ms']:.0f} | {r['bytes'] / 1000:.0f} | "
              f"{r['plan_us']:.0f} | {r['warm_load_us_per_kernel']:.0f} | {runs} |")


if __name__ == "__main__":
    main()
