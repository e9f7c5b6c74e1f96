#!/usr/bin/env python3
"""The table at the end of tools/quickstart, from the JSON that the commands printed.

    quickstart_report.py device FOLDER    the first GPU in doctor.json that is served, or "lockstep"
    quickstart_report.py arch FOLDER      the target to build for: that device's, or sm_90a
    quickstart_report.py table FOLDER     what build.json, again.json, plan.json and run.json say
"""
import json
import os
import sys


def load(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


def served_gpu(folder):
    """(ordinal, target) of the first GPU that kernels can be built for, or None."""
    for ordinal, device in enumerate(load(folder, "doctor.json")["devices"]):
        if "arch" in device:
            return ordinal, device["arch"]
    return None


def rows(folder):
    build, again = load(folder, "build.json"), load(folder, "again.json")
    plan, run = load(folder, "plan.json"), load(folder, "run.json")
    yield "kernels", f"{build['compiled']} compiled in {build['seconds']:.1f} s"
    yield "built again", f"{again['compiled']} compiled, {again['hits']} cache hits, {again['seconds']:.2f} s"
    yield "scratch", f"{plan['scratch_bytes']:,} bytes"
    yield "packed weights", f"{plan['prepared_weight_bytes']:,} bytes"
    yield "ran on", f"{run['device']} ({run['variant']})"
    yield "against fp64", f"relative RMSE {run['rel_rmse']:.2e}, largest error {run['max_abs_err']:.2e}"
    yield "contract", f"{'holds' if run['contract']['holds'] else 'BROKEN'}: {run['contract']['reason']}"


def faults(folder):
    """What must not be: a quick start that shows a table over a failure would teach the wrong thing."""
    build, again, run = (load(folder, name) for name in ("build.json", "again.json", "run.json"))
    if build["failed"] or again["failed"]:
        yield "some kernels did not compile"
    if again["compiled"] or not again["hits"]:
        yield "the second build did not come from the cache"
    if run.get("checked") is not True:
        yield "the result was not checked"


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("device", "arch", "table"):
        sys.exit(__doc__)
    what, folder = sys.argv[1:]
    if what != "table":
        gpu = served_gpu(folder)
        print({"device": f"cuda:{gpu[0]}" if gpu else "lockstep", "arch": gpu[1] if gpu else "sm_90a"}[what])
        return
    for name, value in rows(folder):
        print(f"    {name:<16}{value}")
    found = list(faults(folder))
    for fault in found:
        print(f"error: {fault}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
