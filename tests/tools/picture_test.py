#!/usr/bin/env python3
"""The page that `w4moe bench --html` draws from the committed figures: complete, self-contained, and a browser shows it."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "benchmarks"
ROWS = [FIGURES / "h200-decode.json", FIGURES / "h200-prefill.json"]


def draw(output, *rows, peers=FIGURES / "h200-peers.json"):
    command = [os.environ["W4MOE_CLI"], "bench", "--html", str(output)]
    for path in rows:
        command += ["--rows", str(path)]
    if peers is not None:
        command += ["--peers", str(peers)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Picture(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.page = self.folder / "page.html"
        self.rows = [row for path in ROWS for row in json.loads(path.read_text())["rows"]]

    def test_every_cell_is_there_with_its_figures_and_inside_the_drawing(self):
        self.assertEqual(draw(self.page, *ROWS).returncode, 0)
        text = self.page.read_text()
        self.assertEqual(text.count("<circle"), 4 * len(self.rows))  # ours and the peer's, in the roofline and in the shape's chart
        for row in self.rows:
            self.assertIn(f"m = {row['m']}: {row['us_graph']:.1f} us, {row['fraction_of_floor']:.2f} of the floor", text)
        for svg in re.findall(r"<svg.*?</svg>", text):
            width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
            for x, y in re.findall(r'<circle cx="(\S+)" cy="(\S+)"', svg):
                self.assertTrue(0 < float(x) < width and 0 < float(y) < height, (x, y))
        self.assertNotRegex(text, r"https?://|<script|<link|src=")

    def test_the_committed_page_is_that_of_the_committed_rows(self):
        self.assertEqual(draw(self.page, *ROWS).returncode, 0)
        self.assertEqual(self.page.read_text(), (FIGURES / "h200.html").read_text())

    def write_rows(self, rows, **document):
        path = self.folder / "rows.json"
        path.write_text(json.dumps({"meta": {"gpu": "NVIDIA H200"}, "rows": rows, **document}))
        return path

    def test_a_row_without_a_peer_is_named(self):
        result = draw(self.page, self.write_rows([dict(self.rows[0], m=3)]))
        self.assertEqual(result.returncode, 2)
        self.assertIn(f"has no cell for {self.rows[0]['shape']}, m = 3", result.stderr)
        self.assertFalse(self.page.exists())

    def test_without_peers_it_shows_ours_alone(self):
        row = dict(self.rows[0], shape="<b>mine</b> & more", weight_bytes=5e7, flops=1e9, m=100000)
        self.assertEqual(draw(self.page, self.write_rows([row]), peers=None).returncode, 0)
        text = self.page.read_text()
        self.assertEqual(text.count("<circle"), 2)
        self.assertNotIn("peer", text)
        self.assertNotIn("<b>", text)
        self.assertIn("&lt;b&gt;mine&lt;/b&gt; &amp; more", text)

    def test_what_cannot_be_drawn_is_named(self):
        complete = dict(self.rows[0], weight_bytes=5e7, flops=1e9)
        for change, message in (({"us_graph": 0}, "it lacks a time"), ({"floor_us": None}, "--read-gbps"), ({"flops": None}, "--peers"), ({"us_graph": "1"}, "is not a number")):
            result = draw(self.page, self.write_rows([dict(complete, **change)]), peers=None)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(message, result.stderr)
        for text in ("", "[]", '{"rows": 1}', '{"rows": [1]}', '{"rows": []}'):
            (self.folder / "rows.json").write_text(text)
            self.assertEqual(draw(self.page, self.folder / "rows.json", peers=None).returncode, 2, text)
        self.assertFalse(self.page.exists())

    def test_a_browser_shows_it(self):
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        if browser is None:
            self.skipTest("no Chromium here")
        self.assertEqual(draw(self.page, *ROWS).returncode, 0)
        common = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder}/profile"]
        dom = subprocess.run([*common, "--dump-dom", self.page.as_uri()], capture_output=True, text=True, timeout=120, check=True).stdout
        self.assertEqual(dom.count("<circle"), 4 * len(self.rows))
        shot = self.folder / "shot.png"
        subprocess.run([*common, "--window-size=1300,1800", f"--screenshot={shot}", self.page.as_uri()], capture_output=True, timeout=120, check=True)
        self.assertGreater(shot.stat().st_size, 50000)  # an empty page of this size packs to a tenth of that


if __name__ == "__main__":
    unittest.main()
