#!/usr/bin/env python3
"""Fits the planner's cost model to measured times and writes it as data.

    w4moe-cost-rows docs/benchmarks/h200-kernels.csv docs/benchmarks/h200-decode.json docs/benchmarks/h200-prefill.json > rows.jsonl
    tools/bench/fit_costs.py rows.jsonl --costs generator/plan/costs/sm_90a-h200.json --plot docs/benchmarks/cost-model.svg

The rows carry the work that the planner counts (generator/plan/kernel_work.hpp); this script only finds the rates. The formula is
kernel_us() of generator/plan/cost_model.cpp, written a second time below: a unit test compares the two on the file that this writes.
Needs numpy. The same rows give the same file.
"""
import argparse
import collections
import json
import math

import numpy as np

READ_BYTES_PER_US = 4.617e6  # ceiling of the GPU: bulk copies of 8 GiB
SHARPNESS = 4
FIELDS = ("launch_us", "bytes_per_us", "reread_share", "visit_ns", "column_ns", "item_ns", "output_ns_per_kb", "step_ns", "tail_share")
START = (3, 4.3e6, 0.1, 10, 4, 200, 0.2, 200, 0.1)
LOW = (0.5, 2.5e6, 0, 0, 0, 0, 0, 0, 0)
HIGH = (6, READ_BYTES_PER_US, 1, 60, 60, 8000, 4, 2000, 0.6)


def predict(x, w):
    """Microseconds; `w` holds an array for each count."""
    launch, rate, reread, visit, column, item, output, step, tail = x
    memory = (w["weight_bytes"] + reread * w["reread_bytes"] + w["output_bytes"]) / rate
    arithmetic = (visit * w["unit_visits"] + column * w["unit_columns"] + item * w["items"]) / (w["sms"] * 1e3)
    arithmetic = arithmetic + output * w["output_bytes"] / 1e6
    chain = np.maximum(1.0, w["items"] / w["slots"]) * w["chain"] * step / 1e3
    parts = np.stack([memory, arithmetic, chain])
    longest = np.maximum(parts.max(axis=0), 1e-9)
    together = longest * ((parts / longest) ** SHARPNESS).sum(axis=0) ** (1 / SHARPNESS)
    return launch + together * (1 + tail * np.minimum(1.0, w["slots"] / w["items"]))


def arrays(works):
    return {k: np.array([w[k] for w in works], float) for k in works[0] if k != "key"}


def bounded(y):
    """Unbounded numbers to rates inside LOW .. HIGH, even in log space near the low end."""
    s = 1 / (1 + np.exp(-np.asarray(y)))
    low, high = np.array(LOW, float), np.array(HIGH, float)
    return low + (high - low) * s * s


def unbounded(x):
    low, high = np.array(LOW, float), np.array(HIGH, float)
    s = np.sqrt(np.clip((np.array(x, float) - low) / (high - low), 1e-6, 1 - 1e-6))
    return np.log(s / (1 - s))


def simplex(loss, start, steps):
    """Nelder and Mead's downhill simplex."""
    points = [np.array(start, float)]
    for i in range(len(start)):
        point = points[0].copy()
        point[i] += 0.7
        points.append(point)
    values = [loss(p) for p in points]
    for _ in range(steps):
        order = np.argsort(values, kind="stable")
        points, values = [points[i] for i in order], [values[i] for i in order]
        centre = np.mean(points[:-1], axis=0)
        mirrored = 2 * centre - points[-1]
        value = loss(mirrored)
        if value < values[0]:
            further = 3 * centre - 2 * points[-1]
            best = loss(further)
            points[-1], values[-1] = (further, best) if best < value else (mirrored, value)
        elif value < values[-2]:
            points[-1], values[-1] = mirrored, value
        else:
            inner = (centre + points[-1]) / 2
            value = loss(inner)
            if value < values[-1]:
                points[-1], values[-1] = inner, value
            else:
                points = [points[0]] + [(p + points[0]) / 2 for p in points[1:]]
                values = [values[0]] + [loss(p) for p in points[1:]]
    return points[int(np.argmin(values))]


def fit(works, measured, weights):
    """Rates that minimise mean and root mean square of log errors: no single row decides, none is forgotten."""
    w = arrays(works)
    us = np.array(measured)
    share = np.array(weights) / np.sum(weights)

    def loss(y):
        error = np.abs(np.log(predict(bounded(y), w) / us))
        return float(np.sum(share * error) + 0.5 * math.sqrt(np.sum(share * error * error)))

    y = unbounded(START)
    for _ in range(5):
        y = simplex(loss, y, 500)
    return [0.0 if v < 1e-4 else float(f"{v:.4g}") for v in bounded(y)]


def linear(units, us, weights=None):
    """launch + slope * units by least squares of relative errors, both at least 0."""
    a = np.stack([np.ones(len(us)), units], axis=1) / np.array(us)[:, None]
    (launch, slope), *_ = np.linalg.lstsq(a, np.ones(len(us)), rcond=None)
    if slope < 0:
        launch, slope = float(np.median(us)), 0.0
    return {"launch_us": float(f"{max(launch, 0.0):.4g}"), "ns_per_unit": float(f"{1e3 * slope:.4g}")}


def error_line(name, predicted, measured):
    e = np.abs(np.array(predicted) / np.array(measured) - 1)
    return f"| {name} | {len(e)} | {100 * np.median(e):.1f} % | {100 * np.percentile(e, 90):.1f} % | {100 * e.max():.1f} % |"


def launches_us(costs, row):
    if "launches" not in row:
        return 0.0
    l = row["launches"]
    route = costs["route_parallel" if l["parallel"] else "route"]
    return route["launch_us"] + route["ns_per_unit"] * l["routes"] / 1e3 + costs["combine"]["launch_us"] + costs["combine"]["ns_per_unit"] * l["combine_kb"] / 1e3


def plot(path, points):
    """Predicted over measured, logarithmic, one colour a family."""
    size, pad, low, high = 520, 46, 4.0, 12000.0
    colours = {"portable": "#b3541e", "wgmma": "#0b6e4f", "direct": "#5b4b9a", "layer": "#1f5f8b"}
    place = lambda v: (math.log(v) - math.log(low)) / (math.log(high) - math.log(low)) * (size - 2 * pad) + pad
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" font-family="sans-serif" font-size="11">',
           f'<rect width="{size}" height="{size}" fill="#fff"/>']
    for tick in (10, 100, 1000, 10000):
        p = place(tick)
        svg.append(f'<path d="M{p:.1f} {pad}V{size - pad}M{pad} {size - p:.1f}H{size - pad}" stroke="#e4e4e4"/>')
        svg.append(f'<text x="{p:.1f}" y="{size - pad + 14}" text-anchor="middle">{tick}</text><text x="{pad - 5}" y="{size - p + 4:.1f}" text-anchor="end">{tick}</text>')
    svg.append(f'<path d="M{pad} {size - pad}L{size - pad} {pad}" stroke="#1b1b1b"/>')
    for family, measured, predicted in points:
        svg.append(f'<circle cx="{place(measured):.1f}" cy="{size - place(predicted):.1f}" r="2.2" fill="{colours[family]}" fill-opacity=".55"/>')
    for i, (name, colour) in enumerate(colours.items()):
        svg.append(f'<circle cx="{pad + 12}" cy="{pad + 12 + 16 * i}" r="4" fill="{colour}"/><text x="{pad + 22}" y="{pad + 16 + 16 * i}">{name}</text>')
    svg.append(f'<text x="{size / 2}" y="{size - 10}" text-anchor="middle">measured, us</text>')
    svg.append(f'<text transform="translate(12 {size / 2}) rotate(-90)" text-anchor="middle">predicted, us</text></svg>')
    with open(path, "w") as f:
        f.write("\n".join(svg) + "\n")


def replay(rows, layer):
    """Cells in which one run measured several candidates: what the model's pick, and the planner's rules, lose against the fastest."""
    cells = collections.defaultdict(list)
    for r in rows:
        cells[r["run"], r["shape"], r["m"]].append(r)
    print("\n| cells | measured | the model's pick loses (median, worst) | over 2 % in | the rules' pick, where measured (median, worst) | over 2 % in |")
    print("| --- | --: | --: | --: | --: | --: |")
    for name, runs in (("portable tiles, m = 2 .. 512", ("k1", "k2")), ("wgmma widths, m = 16 .. 8192", ("k3",))):
        losses, ruled, worst = [], [], []
        for (run, shape, m), some in sorted(cells.items()):
            if run not in runs or len(some) < 2:
                continue
            pick, best = min(some, key=layer), min(some, key=lambda r: r["us"])
            losses.append(pick["us"] / best["us"] - 1)
            worst.append((losses[-1], f"{shape} m = {m}: picks {pick['tile']} ({pick['us']} us), fastest {best['tile']} ({best['us']} us)"))
            ruled += [r["us"] / best["us"] - 1 for r in some if r.get("rule")]
        if not losses:
            continue
        text = lambda l: f"{100 * np.median(l):.1f} %, {100 * max(l):.1f} % | {sum(1 for x in l if x > 0.02)} of {len(l)}" if l else "- | -"
        print(f"| {name} | {len(losses)} | {text(losses)} | {text(ruled)} |")
        for loss, what in sorted(worst, reverse=True)[:5]:
            print(f"<!-- {100 * loss:.1f} % {what} -->")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows")
    parser.add_argument("--costs", help="file of costs to write")
    parser.add_argument("--plot", help="SVG to write")
    parser.add_argument("--check", help="file of works and their predictions to write, for the unit test of kernel_us()")
    parser.add_argument("--device", default="NVIDIA H200")
    parser.add_argument("--source", default="docs/benchmarks/h200-kernels.csv")
    args = parser.parse_args()
    with open(args.rows) as f:
        rows = [json.loads(line) for line in f]

    groups = collections.defaultdict(list)
    for row in rows:
        if "work" in row:
            groups[row["work"]["key"]].append(row)
    costs = {"schema": "w4moe.costs/1", "device": args.device, "arch": "sm_90a", "sms": 132, "source": args.source, "launches": {}, "kernels": {}}
    routes = [r for r in rows if r["kernel"] == "route"]
    for name, wanted in (("route", False), ("route_parallel", True)):
        some = [r for r in routes if r["launches"]["parallel"] == wanted]
        costs["launches"][name] = linear([r["launches"]["routes"] for r in some], [r["us"] for r in some])
    some = [r for r in rows if r["kernel"] == "combine"]
    costs["launches"]["combine"] = linear([r["launches"]["combine_kb"] for r in some], [r["us"] for r in some])

    points, lines = [], []
    for key in sorted(groups):
        some = groups[key]
        works, us = [r["work"] for r in some], [r["us"] for r in some]
        rates = fit(works, us, [1.0 if r["planned"] else (0.5 if "wgmma" in key else 0.1) for r in some])
        costs["kernels"][key] = dict(zip(FIELDS, rates))
        planned = [r for r in some if r["planned"] or "wgmma" in key]
        if planned:
            predicted = predict(rates, arrays([r["work"] for r in planned]))
            lines.append(error_line(key, predicted, [r["us"] for r in planned]))
            points += [(r["family"], r["us"], float(p)) for r, p in zip(planned, predicted)]

    def layer(r):
        gemms = [float(predict(list(costs["kernels"][r[part]["key"]].values()), arrays([r[part]]))[0]) for part in ("fc1", "fc2")]
        return sum(gemms) + launches_us(costs["launches"], r)

    layers = [r for r in rows if r["run"] == "bench"]
    gaps = [layer(r) - r["us"] for r in layers if "launches" not in r]
    shares = [r["us"] / layer(r) for r in layers if "launches" in r]
    costs["overlap"] = {"direct_us": float(f"{max(0.0, float(np.median(gaps))):.3g}"), "routed_share": float(f"{float(np.median(shares)):.4g}")}
    predicted = [layer(r) * costs["overlap"]["routed_share"] if "launches" in r else layer(r) - costs["overlap"]["direct_us"] for r in layers]
    points += [("layer", r["us"], p) for r, p in zip(layers, predicted)]
    print("| what | rows | median error | 90th percentile | worst |\n| --- | --: | --: | --: | --: |")
    print("\n".join(lines))
    for name, part in (("layers, m = 1", lambda m: m == 1), ("layers, m = 2 .. 64", lambda m: 1 < m <= 64), ("layers, m from 128 on", lambda m: m >= 128), ("all layers", lambda m: True)):
        chosen = [i for i, r in enumerate(layers) if part(r["m"])]
        if chosen:
            print(error_line(name, [predicted[i] for i in chosen], [layers[i]["us"] for i in chosen]))
    order = sorted(range(len(layers)), key=lambda i: -abs(predicted[i] / layers[i]["us"] - 1))
    for i in order[:8]:
        print(f"worst: {layers[i]['shape']} m={layers[i]['m']} {layers[i]['tile']}: measured {layers[i]['us']} us, predicted {predicted[i]:.1f}")
    replay([r for r in rows if r["kernel"] == "layer" and r["m"] > 1 and r["run"] != "bench" and (r["planned"] or "wgmma" in r["family"])], layer)
    if args.check:
        some = [r for r in rows if "work" in r][::97]
        with open(args.check, "w") as f:
            for r in some:
                us = float(predict(list(costs["kernels"][r["work"]["key"]].values()), arrays([r["work"]]))[0])
                f.write(json.dumps({"work": r["work"], "us": us}) + "\n")
    if args.costs:
        with open(args.costs, "w") as f:
            json.dump(costs, f, indent=1)
            f.write("\n")
    if args.plot:
        plot(args.plot, points)


if __name__ == "__main__":
    main()
