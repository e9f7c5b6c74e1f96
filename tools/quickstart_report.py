#!/usr/bin/env python3
"""The table at the end of tools/quickstart, from the JSON that the commands printed.

    quickstart_report.py has-gpu < doctor.json     exits 0 if there is a CUDA device
    quickstart_report.py table FOLDER              build.json, again.json, plan.json, run.json
"""
import json
import os
import sys


def load(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


def rows(folder):
    build, again = load(folder, "build.json"), load(folder, "again.json")
    plan, run = load(folder, "plan.json"), load(folder, "run.json")
    yield "kernels", f"{build['compiled']} compiled in {build['seconds']:.1f} s"
    yield "built again", f"{again['compiled']} compiled, {again['hits']} cache hits, {again['seconds']:.2f} s"
    yield "scratch", f"{plan['scratch_bytes']:,} bytes"
    yield "packed weights", f"{plan['prepared_weight_bytes']:,} bytes"
    yield "ran on", f"{run['device']} ({run['variant']})"
    yield "against fp64", f"relative RMSE {run['rel_rmse']:.2e}, largest error {run['max_abs_err']:.2e}"


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
    if sys.argv[1:] == ["has-gpu"]:
        sys.exit(0 if json.load(sys.stdin).get("devices") else 1)
    if len(sys.argv) != 3 or sys.argv[1] != "table":
        sys.exit(__doc__)
    for name, value in rows(sys.argv[2]):
        print(f"    {name:<16}{value}")
    found = list(faults(sys.argv[2]))
    for fault in found:
        print(f"error: {fault}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
