#!/usr/bin/env python3
"""Draws measured rows and the peers' cells as one self-contained HTML page: the roofline, and each cell's distance to it.

One chart per shape has the fraction of the floor over m (1 = the floor: memory or arithmetic, whichever takes longer), ours and the
fastest peer's; the first chart has every cell at its arithmetic intensity under the two roofs. Hovering a point shows its figures.
"""
import argparse
import html
import json
import math
import pathlib

READ_GB_PER_S = 4617
PEAK_TFLOPS = 781
COLOURS = ["#0b6e4f", "#b3541e", "#5b4b9a", "#a8324a", "#1f5f8b", "#7a6a00"]
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #1b1b1b; background: #fff }
h1 { font-size: 1.4rem } h2 { font-size: 1rem; margin: 0 0 .3rem }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(23rem, 1fr)); gap: 1.5rem }
svg { width: 100%; height: auto } text { font: 11px system-ui, sans-serif; fill: #444 }
.axis { stroke: #999; stroke-width: 1 } .rule { stroke: #e4e4e4; stroke-width: 1 } .roof { stroke: #1b1b1b; stroke-width: 1.5; fill: none }
table { border-collapse: collapse; font-size: 13px; margin-top: 2rem; display: block; overflow-x: auto }
td, th { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid #e4e4e4 }
"""


class Axes:
    """A plot area: values to places, logarithmic where asked for."""

    def __init__(self, width, height, x, y, log_x=True, log_y=False):
        self.width, self.height, self.x, self.y, self.log_x, self.log_y = width, height, x, y, log_x, log_y
        self.left, self.right, self.top, self.bottom = 42, 22, 10, 30

    @staticmethod
    def share(value, span, log):
        low, high = (map(math.log, span) if log else span)
        return ((math.log(value) if log else value) - low) / (high - low)

    def place(self, x, y):
        across = self.left + self.share(x, self.x, self.log_x) * (self.width - self.left - self.right)
        up = self.height - self.bottom - self.share(y, self.y, self.log_y) * (self.height - self.top - self.bottom)
        return round(across, 1), round(up, 1)

    def frame(self, x_ticks, y_ticks, x_label, y_label):
        parts = []
        for tick in y_ticks:
            (x0, y), (x1, _) = self.place(self.x[0], tick), self.place(self.x[1], tick)
            parts.append(f'<line class="rule" x1="{x0}" y1="{y}" x2="{x1}" y2="{y}"/><text x="{x0 - 6}" y="{y + 4}" text-anchor="end">{tick:g}</text>')
        for tick in x_ticks:
            x, y = self.place(tick, self.y[0])
            parts.append(f'<text x="{x}" y="{y + 14}" text-anchor="middle">{tick:g}</text>')
        (x0, y0), (x1, _) = self.place(self.x[0], self.y[0]), self.place(self.x[1], self.y[0])
        parts.append(f'<line class="axis" x1="{x0}" y1="{y0}" x2="{x1}" y2="{y0}"/>')
        parts.append(f'<text x="{x1}" y="{y0 + 27}" text-anchor="end">{x_label}</text><text x="{x0 + 4}" y="{self.top + 8}">{y_label}</text>')
        return "".join(parts)

    def svg(self, body, label):
        return f'<svg viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{html.escape(label)}">{body}</svg>'


def point(at, colour, title, filled):
    fill = colour if filled else "#fff"
    return f'<circle cx="{at[0]}" cy="{at[1]}" r="3.4" fill="{fill}" stroke="{colour}" stroke-width="1.5"><title>{html.escape(title)}</title></circle>'


def line(places, colour, dashed):
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<polyline points="{" ".join(f"{x},{y}" for x, y in places)}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>'


def shape_chart(shape, rows, peers, colour):
    axes = Axes(420, 230, (1, 8192), (0, 1))
    body = axes.frame([1, 8, 64, 512, 8192], [0, 0.25, 0.5, 0.75, 1], "tokens", "fraction of the floor")
    ours = [(r, axes.place(r["m"], min(r["floor_us"] / r["us_graph"], 1))) for r in rows]
    theirs = [(r, axes.place(r["m"], min(r["floor_us"] / peers[shape, r["m"]]["best_full_us"], 1))) for r in rows]
    body += line([p for _, p in theirs], "#999", True) + line([p for _, p in ours], colour, False)
    for r, at in theirs:
        body += point(at, "#999", f"fastest peer, m = {r['m']}: {peers[shape, r['m']]['best_full_us']} us", False)
    for r, at in ours:
        lead = peers[shape, r["m"]]["best_full_us"] / r["us_graph"]
        body += point(at, colour, f"m = {r['m']}: {r['us_graph']:.1f} us, {r['fraction_of_floor']:.2f} of the floor, {lead:.2f}x, {r['variant']}", True)
    return f"<section><h2>{html.escape(shape)}</h2>{axes.svg(body, shape)}</section>"


def roofline(rows, peers, shapes):
    axes = Axes(1100, 420, (1, 20000), (2, 1200), log_y=True)
    body = axes.frame([1, 10, 100, 1000, 10000], [3, 10, 30, 100, 300, 1000], "flops per byte of touched weights", "TFLOP/s")
    ridge = PEAK_TFLOPS * 1e3 / READ_GB_PER_S
    roof = [axes.place(1, READ_GB_PER_S / 1e3), axes.place(ridge, PEAK_TFLOPS), axes.place(20000, PEAK_TFLOPS)]
    body += f'<polyline class="roof" points="{" ".join(f"{x},{y}" for x, y in roof)}"/>'
    for r in rows:
        cell = peers[r["shape"], r["m"]]
        flops = 6.0 * r["m"] * cell["topk"] * cell["H"] * cell["I"]
        weight_bytes = r["active_experts"] * 3.0 * cell["H"] * cell["I"] * (0.5 + 1.0 / (32 if cell["format"] == "mxfp4" else 16))
        colour = COLOURS[shapes.index(r["shape"]) % len(COLOURS)]
        intensity = flops / weight_bytes
        for us, filled, who in ((cell["best_full_us"], False, "fastest peer"), (r["us_graph"], True, "w4moe")):
            body += point(axes.place(intensity, flops / us * 1e-6), colour, f"{who}, {r['shape']}, m = {r['m']}: {us:.1f} us", filled)
    legend = " ".join(f'<span style="color:{COLOURS[i % len(COLOURS)]}">● {html.escape(s)}</span>' for i, s in enumerate(shapes))
    return f"<section><h2>Roofline: filled w4moe, hollow the fastest peer</h2><p>{legend}</p>{axes.svg(body, 'roofline')}</section>"


def table(rows, peers, shapes):
    cells = {(r["shape"], r["m"]): r for r in rows}
    head = "".join(f"<th>{html.escape(s)}</th>" for s in shapes)
    body = ""
    for m in sorted({r["m"] for r in rows}):
        body += f"<tr><th>{m}</th>"
        for s in shapes:
            r = cells.get((s, m))
            body += "<td></td>" if r is None else f"<td>{r['us_graph']:.1f} us, {peers[s, m]['best_full_us'] / r['us_graph']:.2f}x</td>"
        body += "</tr>"
    return f"<table><tr><th>m</th>{head}</tr>{body}</table>"


def page(meta, rows, peers):
    shapes = list(dict.fromkeys(r["shape"] for r in rows))
    charts = "".join(shape_chart(s, [r for r in rows if r["shape"] == s], peers, COLOURS[i % len(COLOURS)]) for i, s in enumerate(shapes))
    about = f"{meta.get('gpu')}, driver {meta.get('driver')}, NVRTC {meta.get('nvrtc')}, {meta.get('date')}"
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>w4moe: whole layers</title>'
            f"<style>{STYLE}</style><h1>Whole MoE layers, 4-bit weights</h1>"
            f"<p>{html.escape(about)}. Roofs: {READ_GB_PER_S} GB/s, {PEAK_TFLOPS} TFLOP/s. Solid: w4moe. Dashed grey: the fastest of three peers in each cell.</p>"
            f'{roofline(rows, peers, shapes)}<div class="grid">{charts}</div>{table(rows, peers, shapes)}</html>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers", type=pathlib.Path, help="docs/benchmarks/h200-peers.json")
    parser.add_argument("rows", type=pathlib.Path, nargs="+", help="what w4moe-bench --json wrote")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the page")
    args = parser.parse_args()
    peers = {(c["shape"], c["m"]): c for c in json.loads(args.peers.read_text(encoding="utf-8"))["cells"]}
    files = [json.loads(path.read_text(encoding="utf-8")) for path in args.rows]
    rows = [row for f in files for row in f["rows"]]
    unknown = sorted({(r["shape"], r["m"]) for r in rows} - set(peers))
    if unknown:
        parser.error(f"{args.peers} has no cell for {unknown[0][0]}, m = {unknown[0][1]} (and {len(unknown) - 1} more)")
    args.output.write_text(page(files[0]["meta"], rows, peers), encoding="utf-8")


if __name__ == "__main__":
    main()
