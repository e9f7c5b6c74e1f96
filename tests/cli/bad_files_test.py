"""run with layer files that are damaged, lie, or lack something: one error that names the tensor and the numbers, and no output file."""
import os
import struct
import subprocess
import unittest

import support
from run_test import ON_CPU, tiny_inputs, tiny_layer

EXPERTS, HIDDEN, INNER = 4, 64, 32
PREFIX = "model.layers.0.mlp.experts."
LINE = ("run", "--weights", "layer.safetensors", "--inputs", "in.safetensors", "--output", "out.safetensors", *ON_CPU)
BAD_INPUT = (1, 2, 4, 6)  # cannot be read; wrong; not served; damaged


class BadFiles(support.CliTest):
    def give(self, layer=None, inputs=None):
        support.write_safetensors(self.path("layer.safetensors"), layer or tiny_layer())
        support.write_safetensors(self.path("in.safetensors"), inputs or tiny_inputs())

    def rejected(self, *words):
        """One error that holds all words; the exit code says that the input is at fault, and is no crash."""
        result = subprocess.run([support.CLI, *LINE], cwd=self.folder, env=support.environment(self.folder), capture_output=True, text=True, timeout=100)
        self.assertIn(result.returncode, BAD_INPUT, result.stderr)
        self.assertEqual((result.stdout, result.stderr.count("error: ")), ("", 1), result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertFalse(os.path.exists(self.path("out.safetensors")))

    def changed(self, name, **fields):
        layer = tiny_layer()
        dtype, shape, content = layer[PREFIX + name]
        layer[PREFIX + name] = (fields.get("dtype", dtype), fields.get("shape", shape), fields.get("content", content))
        return layer

    def test_truncated_at_any_place(self):
        self.give()
        with open(self.path("layer.safetensors"), "rb") as file:
            whole = file.read()
        header = 8 + struct.unpack("<Q", whole[:8])[0]
        for length in (0, 7, 8, header // 2, header, header + 1, len(whole) - 1):
            with self.subTest(length=length):
                with open(self.path("layer.safetensors"), "wb") as file:
                    file.write(whole[:length])
                self.rejected("layer.safetensors")

    def test_a_header_that_lies(self):
        self.give()
        with open(self.path("layer.safetensors"), "rb") as file:
            whole = file.read()
        for claimed in (0xFFFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, len(whole), len(whole) + 1):
            with self.subTest(claimed=claimed):
                with open(self.path("layer.safetensors"), "wb") as file:
                    file.write(struct.pack("<Q", claimed) + whole[8:])
                self.rejected("layer.safetensors")
        self.give(self.changed("down_proj_blocks", shape=(EXPERTS, HIDDEN, 1, 17)))
        self.rejected("down_proj_blocks", "17")

    def test_a_wrong_dtype(self):
        self.give(self.changed("gate_up_proj_blocks", dtype="I8"))
        self.rejected("gate_up_proj_blocks", "I8")
        self.give(self.changed("down_proj_bias", dtype="I16"))
        self.rejected("down_proj_bias", "I16")
        inputs = tiny_inputs()
        inputs["x"] = ("F16", (3, HIDDEN), inputs["x"][2])
        inputs["topk_weights"] = ("F16", (3, 2), inputs["topk_weights"][2])
        self.give(inputs=inputs)
        self.rejected("F16")

    def test_a_wrong_shape(self):
        self.give(self.changed("gate_up_proj_scales", shape=(EXPERTS, 2 * INNER * HIDDEN // 32)))
        self.rejected("gate_up_proj_scales")
        half = EXPERTS // 2
        self.give(self.changed("down_proj_scales", shape=(half, HIDDEN, 1), content=bytes([127]) * (half * HIDDEN)))
        self.rejected("down_proj_scales", str(half))

    def test_a_missing_tensor(self):
        for name in ("gate_up_proj_scales", "down_proj_blocks", "down_proj_scales", "down_proj_bias"):
            with self.subTest(name=name):
                layer = tiny_layer()
                del layer[PREFIX + name]
                self.give(layer)
                self.rejected(name)
        for name in ("x", "topk_ids", "topk_weights"):
            with self.subTest(name=name):
                inputs = tiny_inputs()
                del inputs[name]
                self.give(inputs=inputs)
                self.rejected(name)

    def test_a_nan_scale_is_named_by_place(self):
        scales = bytearray([127]) * (EXPERTS * HIDDEN)
        scales[2 * HIDDEN + 7] = 255
        self.give(self.changed("down_proj_scales", content=bytes(scales)))
        self.rejected("expert 2", "down", "row 7", "group 0")

    def test_no_tokens_and_no_valid_ids_are_no_errors(self):
        inputs = tiny_inputs()
        inputs["topk_ids"] = ("I32", (3, 2), b"\xff\xff\xff\xff" * 6)
        self.give(inputs=inputs)
        self.json(*LINE)
        _, _, content = support.read_safetensors(self.path("out.safetensors"))["out"]
        self.assertEqual(content, bytes(3 * HIDDEN * 2))
        empty = {"x": ("BF16", (0, HIDDEN), b""), "topk_ids": ("I32", (0, 2), b""), "topk_weights": ("BF16", (0, 2), b"")}
        self.give(inputs=empty)
        self.assertEqual(self.json(*LINE)["tokens"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
