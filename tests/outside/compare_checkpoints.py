#!/usr/bin/env python3
"""Our reading of checkpoints against that of the packages that define the formats.

    compare_checkpoints.py PATH/TO/w4moe_read_values [--log FILE]

Synthetic checkpoints (tests/checkpoints/make_checkpoints.py) are read by w4moe, packed and unpacked, and their weights compared with
  transformers        MXFP4 of gpt-oss        convert_moe_packed_tensors
  compressed-tensors  NVFP4, MXFP4, INT4      unpacking and dequantize
  safetensors         every file, ours too
each asked for fp32. Bit for bit, but for NVFP4's division by the global scale, which one side rounds once more: 2^-22 relative.
Exit code 77 where torch or all of these packages are absent.
"""
import argparse
import importlib
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "checkpoints"))


def package(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"skipped: {name} is not there ({error})")
        return None


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)


torch = package("torch")
if torch is None:
    skip("torch is needed (pip install torch transformers compressed-tensors safetensors numpy)")
safetensors_torch = package("safetensors.torch")
if safetensors_torch is None or package("numpy") is None:
    skip("safetensors and numpy are needed")
import make_checkpoints  # noqa: E402  after numpy is known to be there


class Comparer:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.lines, self.failed = [], 0

    def source(self, family):
        tensors = {}
        folder = os.path.join(self.folder, family)
        for name in sorted(os.listdir(folder)):
            if name.endswith(".safetensors"):
                tensors.update(safetensors_torch.load_file(os.path.join(folder, name)))
        return tensors

    def ours(self, family, layer):
        out = os.path.join(self.folder, f"{family}.{layer}.ours.safetensors")
        subprocess.run([self.program, os.path.join(self.folder, family), layer, out], check=True)
        packed = safetensors_torch.load_file(out + ".packed.safetensors")
        assert all(tensor.dtype == torch.uint8 for tensor in packed.values())
        return safetensors_torch.load_file(out)

    def compare(self, what, ours, theirs, exact=True):
        theirs = theirs.to(torch.float32)
        if ours.shape != theirs.shape:
            return self.told(what, False, f"shape {tuple(ours.shape)}, theirs {tuple(theirs.shape)}")
        different = int((ours.view(torch.int32) != theirs.contiguous().view(torch.int32)).logical_and(ours != theirs).sum())
        worst = float(((ours - theirs).abs() / theirs.abs().clamp_min(1e-30)).max())
        good = different == 0 if exact else worst <= 2.0 ** -22
        self.told(what, good, f"{ours.numel()} weights, {different} differ" + ("" if different == 0 else f", largest relative difference {worst:.2e}"))

    def told(self, what, good, text):
        self.failed += not good
        self.lines.append(f"{'same' if good else 'DIFFERENT'}  {what}: {text}")
        print(self.lines[-1])


def compare_gpt_oss(c):
    if package("transformers") is None:
        return
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    tensors = c.source("gpt-oss")
    for layer in ("0", "1"):
        prefix = f"model.layers.{layer}.mlp.experts."
        ours = c.ours("gpt-oss", layer)
        for name in ("gate_up_proj", "down_proj"):
            # [E, K, rows]: transformers multiplies from the other side
            theirs = convert_moe_packed_tensors(tensors[prefix + name + "_blocks"], tensors[prefix + name + "_scales"], dtype=torch.float32).transpose(1, 2)
            bias = tensors[prefix + name + "_bias"].float()
            if name == "down_proj":
                c.compare(f"gpt-oss layer {layer} down", ours["down"], theirs)
                c.compare(f"gpt-oss layer {layer} down bias", ours["down_bias"], bias)
            else:  # the model takes gate from even rows and up from odd ones
                c.compare(f"gpt-oss layer {layer} gate", ours["gate"], theirs[:, 0::2])
                c.compare(f"gpt-oss layer {layer} up", ours["up"], theirs[:, 1::2])
                c.compare(f"gpt-oss layer {layer} gate bias", ours["gate_bias"], bias[:, 0::2])
                c.compare(f"gpt-oss layer {layer} up bias", ours["up_bias"], bias[:, 1::2])


def of_compressed(tensors, base, weights):
    """One expert's projection by compressed-tensors' own functions, in fp32."""
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    args = QuantizationArgs(**weights)
    packed, scale = tensors[base + "weight_packed"], tensors[base + "weight_scale"]
    if weights["type"] == "int":
        from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
        shape = torch.Size(tensors[base + "weight_shape"].tolist())
        zeros = tensors.get(base + "weight_zero_point")
        if zeros is not None:
            zeros = unpack_from_int32(zeros, 4, torch.Size((shape[0], scale.shape[1])), packed_dim=0)
        return dequantize(x_q=unpack_from_int32(packed, 4, shape), scale=scale.float(), zero_point=zeros, args=args)
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    codes = unpack_fp4_from_uint8(packed, packed.shape[0], 2 * packed.shape[1], dtype=torch.float32)
    if scale.dtype == torch.uint8:  # MXFP4: the exponent's byte
        return dequantize(x_q=codes, scale=torch.ldexp(torch.ones(()), scale.to(torch.int32) - 127), args=args, dtype=torch.float32)
    return dequantize(x_q=codes, scale=scale.float(), args=args, global_scale=tensors[base + "weight_global_scale"], dtype=torch.float32)


def compare_compressed(c):
    if package("compressed_tensors") is None:
        return
    int4 = {"num_bits": 4, "type": "int", "strategy": "group"}
    fp4 = {"num_bits": 4, "type": "float", "symmetric": True}
    cases = (("ct-int4-kimi", "1", "language_model.model.layers.1.", {**int4, "group_size": 32, "symmetric": True}),
             ("ct-int4-zp", "0", "model.layers.0.", {**int4, "group_size": 64, "symmetric": False}),
             ("ct-nvfp4", "0", "model.layers.0.", {**fp4, "group_size": 16, "strategy": "tensor_group"}),
             ("ct-nvfp4-exact", "0", "model.layers.0.", {**fp4, "group_size": 16, "strategy": "tensor_group"}),
             ("ct-mxfp4", "0", "model.layers.0.", {**fp4, "group_size": 32, "strategy": "group"}))
    for family, layer, prefix, weights in cases:
        tensors, ours = c.source(family), c.ours(family, layer)
        for part in ("gate", "up", "down"):
            experts = [of_compressed(tensors, f"{prefix}mlp.experts.{e}.{part}_proj.", weights) for e in range(ours[part].shape[0])]
            c.compare(f"{family} {part}", ours[part], torch.stack(experts), exact=family != "ct-nvfp4")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--log")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_checkpoints.make(folder, ("gpt-oss", "ct-int4-kimi", "ct-int4-zp", "ct-nvfp4", "ct-nvfp4-exact", "ct-mxfp4"))
        c = Comparer(arguments.program, folder)
        compare_gpt_oss(c)
        compare_compressed(c)
    if not c.lines:
        skip("neither transformers nor compressed-tensors is there")
    if arguments.log:
        versions = [f"{name} {importlib.import_module(name.replace('-', '_')).__version__}" for name in ("torch", "transformers", "compressed-tensors", "safetensors", "numpy")
                    if package(name.replace("-", "_")) is not None]
        with open(arguments.log, "w", encoding="utf-8") as file:
            file.write("tests/outside/compare_checkpoints.py\n" + ", ".join(versions) + "\n\n" + "\n".join(c.lines) + "\n")
    print(f"{len(c.lines) - c.failed} passed, {c.failed} failed")
    sys.exit(c.failed != 0)


if __name__ == "__main__":
    main()
