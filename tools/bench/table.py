#!/usr/bin/env python3
"""Prints the table of docs/benchmarks/README.md from measured rows and the peers' cells: ours, and how many times faster."""
import argparse
import json
import math


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", help="docs/benchmarks/h200-peers.json")
    parser.add_argument("rows", nargs="+", help="h200-decode.json, h200-prefill.json")
    args = parser.parse_args()
    with open(args.peers, encoding="utf-8") as f:
        peers = {(c["shape"], c["m"]): c for c in json.load(f)["cells"]}
    rows = {}
    for path in args.rows:
        with open(path, encoding="utf-8") as f:
            rows.update({(r["shape"], r["m"]): r for r in json.load(f)["rows"]})
    shapes = list(dict.fromkeys(shape for shape, _ in rows))
    print("| m | " + " | ".join(shapes) + " | best peer | Marlin |")
    print("|--:|" + "--:|" * (len(shapes) + 2))
    for m in sorted({m for _, m in rows}):
        cells, best, marlin = [], [], []
        for shape in shapes:
            row, peer = rows[shape, m], peers[shape, m]
            best.append(peer["best_full_us"] / row["us_graph"])
            marlin.append(peer["marlin_full"] / row["us_graph"])
            cells.append(f"{row['us_graph']:.1f} us, {row['fraction_of_floor']:.2f}, {best[-1]:.2f}x")
        mean = lambda v: math.exp(sum(map(math.log, v)) / len(v))
        print(f"| {m} | " + " | ".join(cells) + f" | {mean(best):.2f}x | {mean(marlin):.2f}x |")


if __name__ == "__main__":
    main()
