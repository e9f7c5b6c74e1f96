#!/usr/bin/env python3
"""Each lint finds the fault that is planted, where it is planted, and is silent on what looks like it and is right."""
import os
import tempfile
import unittest

import check_layers
import file_size
import one_definition
import source_text


class Tree:
    """A small project in a temporary folder: {path: text}."""

    def __init__(self, files):
        self._folder = tempfile.TemporaryDirectory()
        self.root = self._folder.name
        for path, text in files.items():
            full = os.path.join(self.root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)

    def __enter__(self):
        return self.root

    def __exit__(self, *_):
        self._folder.cleanup()


class SourceText(unittest.TestCase):
    def test_comments_and_literals_are_blanked_in_place(self):
        text = 'a /* x\ny */ b // "c\n"d // e" f \'"\' g 1\'000 R"(\n")" h'
        blank = source_text.blank(text)
        self.assertEqual(len(blank), len(text))
        self.assertEqual(blank.split(), ["a", "b", "f", "g", "1'000", "h"])
        self.assertEqual(blank.count("\n"), text.count("\n"))

    def test_an_empty_project_is_a_fault(self):
        self.assertEqual(source_text.report("selftest", [], 0), 1)
        self.assertEqual(source_text.report("selftest", [], 1), 0)


class OneDefinition(unittest.TestCase):
    def lines(self, code, path="runtime/x.cpp"):
        return [finding.line for finding in one_definition.check_text(path, code)]

    def test_planted_faults_are_found(self):
        for code in (
            "int64_t row_stride_elems = groups * padded;",
            "auto n_padded = n / 64 + tail;",
            "constexpr int kRowPitch = 64 << 1;",
            "layout.expert_stride_bytes = size_n * size_k / 512;",
            "const i64 offset_bytes{e * 32};",
            "offset_elems *= 2;",
            "Desc d{.k_padded = k * 2, .n = 1};",
            "int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }",
            "template <class T> constexpr T align_up(T a, T b) noexcept { return b * q(a, b); }",
            "static inline int RoundUp(int a) { return a; }",
            "i64 align_up_u64(i64 a) { return a; }",
            "int64_t Layout::row_stride_elems() const { return groups_ * 64; }",
            "auto scale_stride(int n) -> int64_t { return n * 8; }",
            "x = (n + tile - 1) / tile;",
            "x = (a.n() + kTile - 1) / kTile;",
            "x = (n + 15) / 16;",
            "x = n & ~(align - 1);",
            "x = (n + 127) & ~127;",
            "x = (n + 0x7f) & ~0x7f;",
        ):
            with self.subTest(code):
                self.assertEqual(self.lines("// first\n" + code), [2])

    def test_what_is_right_is_silent(self):
        for code in (
            "int64_t row_stride_elems = layout.row_stride_elems();",
            "auto offset_bytes = base + layout.offset_bytes(e, n / 64, k * 2);",
            "int64_t stride = strides[i * 2];",
            "const char* padded = *pointers;",
            "auto* stride = &other;",
            "if (x.padded_rows(m * 2)) { y = m * 3; }",
            "return layout.padded_rows(m) * 2;",
            "bool k_padded = k % 64 != 0 && wide;",
            "int64_t row_stride_elems() const { return layout_.row_stride_elems(); }",
            "int64_t row_stride_elems() const;",
            "// stride = a * b, (n + 15) / 16",
            'log("padded = n * 2, (n + 15) / 16");',
            "x = (n + 15) / 17;",
            "x = (n + m - 1) / k;",
            "mean = (a + b) / 2;",
            "mask = flags & ~kFlag;",
            "auto t = ceil_div(n, tile);",
            "float round_to_half(float x) { return x; }",
            "#include \"stride/a*b.h\"",
            "std::vector<std::vector<int>> strides = f();",
            "i64 stride = n * 2;  // lint: one-definition: a caller's own array, not a layout",
            "// lint: one-definition: a caller's own array, not a layout\ni64 stride = n * 2;",
        ):
            with self.subTest(code):
                self.assertEqual(self.lines(code), [])

    def test_the_waiver_wants_a_reason(self):
        self.assertEqual(self.lines("i64 stride = n * 2;  // lint: one-definition:\n"), [1])

    def test_folders(self):
        fault = "int x = (n + 15) / 16;\n"
        folders = ("generator", "runtime", "tools", "templates/device", "templates/kernels")
        silent = ("templates/contract", "runtime/lockstep", "cache", "tests")
        with Tree({f"{folder}/x.hpp": fault for folder in folders + silent}) as root:
            findings, checked = one_definition.check(root)
        self.assertEqual(sorted(finding.path for finding in findings), sorted(f"{folder}/x.hpp" for folder in folders))
        self.assertEqual(checked, len(folders))

    def test_every_exempt_place_exists(self):
        root = source_text.default_root()
        self.assertEqual([path for path in one_definition.EXEMPT if not os.path.exists(os.path.join(root, path))], [])


class CheckLayers(unittest.TestCase):
    FILES = {
        "templates/contract/shape.h": "#pragma once\n",
        "templates/device/ops.h": '#include "contract/shape.h"\n',
        "templates/kernels/fc1.cuh": '#include "device/ops.h"\n#include "contract/shape.h"\n',
        "generator/include/w4moe/error.hpp": "#include <string>\n",
        "generator/include/w4moe/plan.hpp": '#include <vector>\n#include "contract/shape.h"\n#include "w4moe/error.hpp"\n',
        "generator/plan/planner.cpp": '#include "planner.hpp"\n#include "w4moe/plan.hpp"\n#include <fmt/core.h>\n',
        "generator/plan/planner.hpp": '#include "contract/shape.h"\n',
        "cache/key.cpp": '#include "cache/key.hpp"\n#include "w4moe/error.hpp"\n#include <xxhash.h>\n',
        "cache/key.hpp": "#include <string>\n",
        "runtime/include/w4moe/w4moe.h": "#include <stdint.h>\n",
        "runtime/build/builder.cpp": '#include "cache/key.hpp"\n#include "generator/plan/planner.hpp"\n#include <spdlog/spdlog.h>\n',
        "runtime/lockstep/device.cpp": '#include "kernels/fc1.cuh"\n',
        "tools/cli/main.cpp": '#include "w4moe/plan.hpp"\n#include <CLI/CLI.hpp>\n',
        "tests/unit/x.cpp": '#include "device/ops.h"\n#include "cache/key.hpp"\n#include <w4moe/plan.hpp>\n',
    }

    def check(self, path, line):
        files = dict(self.FILES)
        files[path] = files.get(path, "") + line + "\n"
        with Tree(files) as root:
            return [finding.path for finding in check_layers.check(root)[0]]

    def test_the_architecture_as_it_should_be(self):
        with Tree(self.FILES) as root:
            findings, checked = check_layers.check(root)
        self.assertEqual([str(finding) for finding in findings], [])
        self.assertEqual(checked, len(self.FILES))

    def test_planted_faults_are_found(self):
        for path, line in (
            ("templates/contract/shape.h", "#include <cstdint>"),
            ("templates/contract/shape.h", '#include "device/ops.h"'),
            ("templates/contract/shape.h", '#include "w4moe/error.hpp"'),
            ("templates/device/ops.h", "#include <cuda_fp16.h>"),
            ("templates/device/ops.h", '#include "kernels/fc1.cuh"'),
            ("templates/kernels/fc1.cuh", '#include "runtime/build/builder.hpp"\n#include <vector>'),
            ("cache/key.cpp", '#include "contract/shape.h"'),
            ("cache/key.cpp", '#include "w4moe/plan.hpp"'),
            ("cache/key.cpp", '  #  include "generator/plan/planner.hpp"'),
            ("generator/plan/planner.cpp", '#include "cache/key.hpp"'),
            ("generator/plan/planner.cpp", '#include "w4moe/w4moe.h"'),
            ("generator/plan/planner.cpp", '#include "device/ops.h"'),
            ("generator/plan/planner.cpp", "#include <nvrtc.h>"),
            ("generator/include/w4moe/plan.hpp", '#include "generator/plan/planner.hpp"'),
            ("generator/include/w4moe/plan.hpp", "#include <fmt/core.h>"),
            ("generator/include/w4moe/plan.hpp", "#include <nlohmann/json.hpp>"),
            ("runtime/include/w4moe/w4moe.h", "#include <cuda.h>"),
            ("runtime/build/builder.cpp", '#include "device/ops.h"'),
            ("runtime/build/builder.cpp", '#include "tests/unit/x.cpp"'),
            ("tools/cli/main.cpp", '#include "device/ops.h"'),
        ):
            with self.subTest(f"{path}: {line}"):
                self.assertEqual(self.check(path, line), [path])

    def test_a_comment_is_no_include(self):
        self.assertEqual(self.check("cache/key.cpp", '// #include "contract/shape.h"\n/*\n#include <cuda.h>\n*/'), [])


class FileSize(unittest.TestCase):
    def check(self, lines, path="runtime/x.cpp"):
        with Tree({path: "int x;\n" * lines}) as root:
            return [finding.path for finding in file_size.check(root)[0]]

    def test_limits(self):
        self.assertEqual(self.check(file_size.FAULT_LINES), [])
        self.assertEqual(self.check(file_size.FAULT_LINES + 1), ["runtime/x.cpp"])

    def test_every_listed_table_exists(self):
        root = source_text.default_root()
        self.assertEqual([path for path in file_size.TABLES if not os.path.isfile(os.path.join(root, path))], [])


if __name__ == "__main__":
    unittest.main()
