#!/usr/bin/env python3
"""Small checkpoints of every family that w4moe reads, under the names and dtypes of real models.

    make_checkpoints.py FOLDER [FAMILY ...]

Each family is a folder with safetensors shards, their index and config.json, as a model hub has it; beside it FAMILY.expected.safetensors
holds what every weight stands for, in fp32: "<layer prefix>gate" [E, I, H], "up", "down" [E, H, I], and biases where there are any.
The expected values come from the logical codes and scales before any packing. Needs numpy; shares no code with the reader.
"""
import json
import os
import struct
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(77)  # the tests skip

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
DTYPES = {"U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E8M0": 1, "BF16": 2, "F16": 2, "I32": 4, "F32": 4, "I64": 8}


# ---- files

def write_safetensors(path, tensors, metadata=None):
    """tensors: name -> (dtype, shape, bytes)."""
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, content) in tensors.items():
        assert len(content) == DTYPES[dtype] * int(np.prod(shape, dtype=np.int64)), name
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(content)]}
        offset += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, content in tensors.values():
            file.write(content)


def write_model(folder, tensors, config, shards=2, extra=None):
    """Shards dealt out by position, so that a layer's tensors lie in several."""
    os.makedirs(folder, exist_ok=True)
    names = list(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for i, name in enumerate(names) if i * shards // len(names) == shard}
        write_safetensors(os.path.join(folder, file), part, {"format": "pt"})
        weight_map.update({name: file for name in part})
    total = sum(len(content) for _, _, content in tensors.values())
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, file)
    for name, value in {"config.json": config, **(extra or {})}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)


# ---- numbers

def bf16_bits(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def of_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def e4m3_table():
    table = np.zeros(256, np.float32)
    for byte in range(256):
        exponent, mantissa = byte >> 3 & 15, byte & 7
        magnitude = mantissa * 2.0 ** -9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
        table[byte] = -magnitude if byte & 128 else magnitude
    return table


E4M3 = e4m3_table()


def of_e8m0(exponents):
    return np.ldexp(np.float32(1), exponents.astype(np.int32) - 127).astype(np.float32)


def nibbles(codes):
    """Two codes a byte along the last dimension, the even one in the low nibble."""
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def words(codes, axis, order=range(8)):
    """Eight codes an int32 along an axis; nibble i holds code order[i]."""
    codes = np.moveaxis(codes, axis, -1).astype(np.uint32)
    shape = codes.shape[:-1] + (codes.shape[-1] // 8, 8)
    codes = codes.reshape(shape)
    word = np.zeros(shape[:-1], np.uint32)
    for i, at in enumerate(order):
        word |= codes[..., at] << np.uint32(4 * i)
    return np.ascontiguousarray(np.moveaxis(word, -1, axis)).view(np.int32)


AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


class Matrix:
    """One projection of all experts: logical codes [E, rows, k], scales [E, rows, groups], and what they stand for."""

    def __init__(self, rng, experts, rows, k, kind, group):
        self.shape = (experts, rows, k)
        self.group = group
        groups = (experts, rows, k // group)
        self.codes = rng.integers(0, 16, self.shape).astype(np.uint8)
        self.zeros = None
        self.globals = np.ones(experts, np.float32)
        if kind == "mxfp4":
            self.scales = rng.integers(100, 130, groups).astype(np.uint8)
            values, scales = E2M1[self.codes], of_e8m0(self.scales)
        elif kind == "nvfp4":
            self.scales = rng.integers(1, 127, groups).astype(np.uint8)  # subnormals too
            self.globals = rng.uniform(0.001, 0.02, experts).astype(np.float32)
            values, scales = E2M1[self.codes], E4M3[self.scales]
        else:
            half = kind.startswith("f16")
            raw = rng.uniform(0.002, 0.05, groups)
            self.scales = raw.astype(np.float16).view(np.uint16) if half else bf16_bits(raw)
            if kind.endswith("zp"):
                self.zeros = rng.integers(0, 16, groups).astype(np.uint8)
            zeros = 8 if self.zeros is None else np.repeat(self.zeros, group, axis=2).astype(np.int32)
            values = (self.codes.astype(np.int32) - zeros).astype(np.float32)
            scales = self.scales.view(np.float16).astype(np.float32) if half else of_bf16(self.scales)
        self.unscaled = values * np.repeat(scales, group, axis=2)

    def expected(self):
        return (self.unscaled * self.globals[:, None, None]).astype(np.float32)


def tensor(array, dtype):
    array = np.ascontiguousarray(array)
    return dtype, array.shape, array.tobytes()


class Model:
    """The tensors of a model, and the expected values of its layers."""

    def __init__(self, name, seed):
        self.name = name
        self.rng = np.random.default_rng(seed)
        self.tensors = {}
        self.expected = {}
        self.noise("model.embed_tokens.weight", (64, 16))

    def noise(self, name, shape, dtype="BF16"):
        """A tensor that is no routed expert's."""
        self.tensors[name] = (dtype, shape, self.rng.bytes(DTYPES[dtype] * int(np.prod(shape))))

    def layer(self, prefix, experts, hidden, features, kind, group, gated=True):
        parts = {"down": (hidden, features), "up": (features, hidden), **({"gate": (features, hidden)} if gated else {})}
        matrices = {part: Matrix(self.rng, experts, rows, k, kind, group) for part, (rows, k) in parts.items()}
        for part, matrix in matrices.items():
            self.expect(prefix + part, matrix.expected())
        return matrices

    def expect(self, name, values):
        self.expected[name] = tensor(values.astype(np.float32), "F32")

    def save(self, folder, config, **options):
        write_model(os.path.join(folder, self.name), self.tensors, config, **options)
        write_safetensors(os.path.join(folder, self.name + ".expected.safetensors"), self.expected)


# ---- families

def gpt_oss(folder):
    m = Model("gpt-oss", 1)
    experts, hidden, features = 4, 96, 64
    for layer in range(2):
        prefix = f"model.layers.{layer}.mlp.experts."
        m.noise(f"model.layers.{layer}.mlp.router.weight", (experts, hidden))
        parts = m.layer(prefix, experts, hidden, features, "mxfp4", 32)

        def interleave(gate, up):
            return np.stack([gate, up], axis=2).reshape(experts, 2 * features, -1)

        fused_codes = interleave(parts["gate"].codes, parts["up"].codes)
        m.tensors[prefix + "gate_up_proj_blocks"] = tensor(nibbles(fused_codes).reshape(experts, 2 * features, hidden // 32, 16), "U8")
        m.tensors[prefix + "gate_up_proj_scales"] = tensor(interleave(parts["gate"].scales, parts["up"].scales), "U8")
        m.tensors[prefix + "down_proj_blocks"] = tensor(nibbles(parts["down"].codes).reshape(experts, hidden, features // 32, 16), "U8")
        m.tensors[prefix + "down_proj_scales"] = tensor(parts["down"].scales, "U8")
        bias = bf16_bits(m.rng.normal(size=(experts, 2 * features)))
        down_bias = bf16_bits(m.rng.normal(size=(experts, hidden)))
        m.tensors[prefix + "gate_up_proj_bias"] = tensor(bias, "BF16")
        m.tensors[prefix + "down_proj_bias"] = tensor(down_bias, "BF16")
        m.expect(prefix + "gate_bias", of_bf16(bias[:, 0::2]))
        m.expect(prefix + "up_bias", of_bf16(bias[:, 1::2]))
        m.expect(prefix + "down_bias", of_bf16(down_bias))
    m.save(folder, {"model_type": "gpt_oss", "hidden_size": hidden, "intermediate_size": features, "num_local_experts": experts, "num_experts_per_tok": 2,
                    "hidden_act": "silu", "swiglu_limit": 7.0, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}})


def per_expert(m, prefix, parts, write, names=("gate_proj", "up_proj", "down_proj")):
    """write(base, matrix, expert) adds the tensors of one expert's projection."""
    for expert in range(next(iter(parts.values())).shape[0]):
        for part, name in zip(("gate", "up", "down"), names):
            if part in parts:
                write(f"{prefix}{expert}.{name}.", parts[part], expert)


def modelopt_writer(m):
    def write(base, matrix, expert):
        m.tensors[base + "weight"] = tensor(nibbles(matrix.codes[expert]), "U8")
        m.tensors[base + "weight_scale"] = tensor(matrix.scales[expert], "F8_E4M3")
        m.tensors[base + "weight_scale_2"] = tensor(matrix.globals[expert], "F32")
        m.tensors[base + "input_scale"] = tensor(np.float32(0.01), "F32")
    return write


def modelopt_deepseek(folder):
    m = Model("modelopt-deepseek", 2)
    experts, hidden, features = 4, 128, 48
    m.noise("model.layers.0.mlp.gate_proj.weight", (64, 128))
    for layer in (1, 2):
        mlp = f"model.layers.{layer}.mlp."
        m.noise(mlp + "gate.weight", (experts, hidden))
        m.noise(mlp + "gate.e_score_correction_bias", (experts,), "F32")
        m.noise(mlp + "shared_experts.up_proj.weight", (48, 64), "U8")
        m.noise(mlp + "shared_experts.up_proj.weight_scale", (48, 8), "F8_E4M3")
        parts = m.layer(mlp + "experts.", experts, hidden, features, "nvfp4", 16)
        per_expert(m, mlp + "experts.", parts, modelopt_writer(m))
    # The draft layer is left in bf16, as the released model leaves it.
    for expert in range(experts):
        for name, shape in (("gate_proj", (48, 128)), ("up_proj", (48, 128)), ("down_proj", (128, 48))):
            m.noise(f"model.layers.3.mlp.experts.{expert}.{name}.weight", shape)
    m.save(folder, {"model_type": "deepseek_v3", "hidden_size": hidden, "intermediate_size": 512, "moe_intermediate_size": features, "n_routed_experts": experts,
                    "num_experts_per_tok": 2, "hidden_act": "silu"}, shards=3,
           extra={"hf_quant_config.json": {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8",
                                                                                           "group_size": 16, "exclude_modules": ["lm_head"]}}})


def modelopt_qwen3(folder):
    m = Model("modelopt-qwen3", 3)
    prefix = "model.language_model.layers.0.mlp.experts."
    m.noise("model.language_model.layers.0.mlp.shared_expert.up_proj.weight", (16, 64))
    parts = m.layer(prefix, 2, 64, 32, "nvfp4", 16)
    per_expert(m, prefix, parts, modelopt_writer(m))
    m.save(folder, {"model_type": "qwen3_vl_moe", "text_config": {"model_type": "qwen3_moe", "hidden_size": 64, "moe_intermediate_size": 32, "num_experts": 2,
                                                                  "num_experts_per_tok": 1, "hidden_act": "silu"},
                    "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4",
                                            "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 16, "type": "float"}}}}}, shards=1)


def modelopt_glm(folder):
    m = Model("modelopt-glm", 4)
    prefix = "model.layers.1.mlp.experts."
    parts = m.layer(prefix, 3, 64, 80, "nvfp4", 16)
    per_expert(m, prefix, parts, modelopt_writer(m))
    m.save(folder, {"model_type": "glm4_moe", "hidden_size": 64, "moe_intermediate_size": 80, "n_routed_experts": 3, "num_experts_per_tok": 2, "hidden_act": "silu",
                    "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, shards=1)


def modelopt_nemotron(folder):
    m = Model("modelopt-nemotron", 5)
    prefix = "backbone.layers.1.mixer.experts."
    m.noise("backbone.layers.1.mixer.gate.weight", (4, 64))
    m.noise("backbone.layers.1.mixer.shared_experts.up_proj.weight", (32, 32), "U8")
    parts = m.layer(prefix, 4, 64, 48, "nvfp4", 16, gated=False)
    per_expert(m, prefix, parts, modelopt_writer(m))
    m.save(folder, {"model_type": "nemotron_h", "hidden_size": 64, "moe_intermediate_size": 48, "n_routed_experts": 4, "num_experts_per_tok": 2,
                    "mlp_hidden_act": "relu2", "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, shards=1)


def compressed_config(form, weights, **sizes):
    return {**sizes, "hidden_act": "silu", "quantization_config": {
        "quant_method": "compressed-tensors", "format": form, "version": "0.12.2", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"dynamic": False, "actorder": None, **weights}}}}}


def ct_nvfp4(folder, name="ct-nvfp4", exact=False):
    m = Model(name, 6)
    prefix = "model.layers.0.mlp.experts."
    parts = m.layer(prefix, 3, 64, 32, "nvfp4", 16)
    for part, matrix in parts.items():
        # The file holds what divides. Powers of two are exact both ways; others are compared within their rounding.
        divisor = 2.0 ** m.rng.integers(3, 9, 3) if exact else m.rng.uniform(50, 900, 3)
        matrix.divisor = divisor.astype(np.float32)
        m.expect(prefix + part, matrix.unscaled / matrix.divisor[:, None, None])

    def write(base, matrix, expert):
        m.tensors[base + "weight_packed"] = tensor(nibbles(matrix.codes[expert]), "U8")
        m.tensors[base + "weight_scale"] = tensor(matrix.scales[expert], "F8_E4M3")
        m.tensors[base + "weight_global_scale"] = tensor(matrix.divisor[expert:expert + 1], "F32")
        m.tensors[base + "input_global_scale"] = tensor(np.ones(1, np.float32), "F32")

    per_expert(m, prefix, parts, write)
    m.save(folder, compressed_config("nvfp4-pack-quantized", {"num_bits": 4, "group_size": 16, "strategy": "tensor_group", "symmetric": True, "type": "float"},
                                     hidden_size=64, moe_intermediate_size=32, num_experts=3, num_experts_per_tok=2))


def ct_nvfp4_exact(folder):
    ct_nvfp4(folder, "ct-nvfp4-exact", exact=True)


def ct_mxfp4(folder):
    m = Model("ct-mxfp4", 7)
    prefix = "model.layers.0.mlp.experts."
    parts = m.layer(prefix, 2, 64, 32, "mxfp4", 32)

    def write(base, matrix, expert):
        m.tensors[base + "weight_packed"] = tensor(nibbles(matrix.codes[expert]), "U8")
        m.tensors[base + "weight_scale"] = tensor(matrix.scales[expert], "U8")

    per_expert(m, prefix, parts, write)
    m.save(folder, compressed_config("mxfp4-pack-quantized", {"num_bits": 4, "group_size": 32, "strategy": "group", "symmetric": True, "type": "float"},
                                     hidden_size=64, moe_intermediate_size=32, num_experts=2, num_experts_per_tok=1))


def ct_int4(folder, name, prefix, kind, group, symmetric, hidden, features, shape_dtype):
    m = Model(name, 8)
    parts = m.layer(prefix, 4, hidden, features, kind, group)

    def write(base, matrix, expert):
        m.tensors[base + "weight_packed"] = tensor(words(matrix.codes[expert], 1), "I32")
        m.tensors[base + "weight_scale"] = tensor(matrix.scales[expert], "BF16")
        shape = np.array(matrix.shape[1:], np.int64 if shape_dtype == "I64" else np.int32)
        m.tensors[base + "weight_shape"] = tensor(shape, shape_dtype)
        if matrix.zeros is not None:
            m.tensors[base + "weight_zero_point"] = tensor(words(matrix.zeros[expert], 0), "I32")

    per_expert(m, prefix, parts, write)
    m.save(folder, compressed_config("pack-quantized", {"num_bits": 4, "group_size": group, "strategy": "group", "symmetric": symmetric, "type": "int"},
                                     hidden_size=hidden, moe_intermediate_size=features, n_routed_experts=4, num_experts_per_tok=2))


def kimi(folder):
    ct_int4(folder, "ct-int4-kimi", "language_model.model.layers.1.mlp.experts.", "bf16", 32, True, 128, 64, "I32")


def ct_int4_zero_points(folder):
    ct_int4(folder, "ct-int4-zp", "model.layers.0.mlp.experts.", "bf16zp", 64, False, 128, 128, "I64")


def awq(folder):
    m = Model("awq", 9)
    prefix = "model.layers.0.mlp.experts."
    parts = m.layer(prefix, 3, 128, 64, "f16zp", 32)

    def write(base, matrix, expert):
        m.tensors[base + "qweight"] = tensor(words(matrix.codes[expert].T, 1, AWQ_ORDER), "I32")
        m.tensors[base + "qzeros"] = tensor(words(matrix.zeros[expert].T, 1, AWQ_ORDER), "I32")
        m.tensors[base + "scales"] = tensor(matrix.scales[expert].T, "F16")

    per_expert(m, prefix, parts, write)
    m.save(folder, {"hidden_size": 128, "moe_intermediate_size": 64, "num_experts": 3, "num_experts_per_tok": 2, "hidden_act": "silu",
                    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}})


def gptq(folder, name, symmetric, stored_less):
    m = Model(name, 10)
    prefix = "model.layers.0.block_sparse_moe.experts."
    parts = m.layer(prefix, 3, 128, 64, "f16" if symmetric else "f16zp", 32)

    def write(base, matrix, expert):
        groups = matrix.shape[2] // matrix.group
        zeros = np.full((matrix.shape[1], groups), 8, np.uint8) if matrix.zeros is None else matrix.zeros[expert]
        m.tensors[base + "qweight"] = tensor(words(matrix.codes[expert].T, 0), "I32")
        m.tensors[base + "qzeros"] = tensor(words((zeros.T - stored_less) & 15, 1), "I32")
        m.tensors[base + "scales"] = tensor(matrix.scales[expert].T, "F16")
        m.tensors[base + "g_idx"] = tensor((np.arange(matrix.shape[2]) // matrix.group).astype(np.int32), "I32")

    per_expert(m, prefix, parts, write, ("w1", "w3", "w2"))
    m.save(folder, {"hidden_size": 128, "intermediate_size": 64, "num_local_experts": 3, "num_experts_per_tok": 2, "hidden_act": "silu",
                    "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": symmetric,
                                            "checkpoint_format": "gptq" if stored_less else "gptq_v2"}})


def gptq_asymmetric(folder):
    gptq(folder, "gptq", False, 1)


def gptq_symmetric(folder):
    gptq(folder, "gptq-sym", True, 1)


def gptq_second_format(folder):
    gptq(folder, "gptq-v2", False, 0)


def deepseek_v4(folder):
    m = Model("deepseek-v4", 11)
    for prefix in ("layers.0.ffn.experts.", "mtp.0.ffn.experts."):
        ffn = prefix[:-len("experts.")]
        m.noise(ffn + "gate.weight", (4, 128))
        m.noise(ffn + "shared_experts.w1.weight", (64, 128), "F8_E4M3")
        m.noise(ffn + "shared_experts.w1.scale", (1, 1), "F8_E8M0")
        parts = m.layer(prefix, 4, 128, 64, "mxfp4", 32)

        def write(base, matrix, expert):
            m.tensors[base + "weight"] = tensor(nibbles(matrix.codes[expert]), "I8")
            m.tensors[base + "scale"] = tensor(matrix.scales[expert], "F8_E8M0")

        per_expert(m, prefix, parts, write, ("w1", "w3", "w2"))
    m.save(folder, {"model_type": "deepseek_v4", "hidden_size": 128, "moe_intermediate_size": 64, "n_routed_experts": 4, "num_experts_per_tok": 2,
                    "hidden_act": "silu", "swiglu_limit": 10.0, "expert_dtype": "fp4",
                    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}})


FAMILIES = {"gpt-oss": gpt_oss, "modelopt-deepseek": modelopt_deepseek, "modelopt-qwen3": modelopt_qwen3, "modelopt-glm": modelopt_glm,
            "modelopt-nemotron": modelopt_nemotron, "ct-nvfp4": ct_nvfp4, "ct-nvfp4-exact": ct_nvfp4_exact, "ct-mxfp4": ct_mxfp4, "ct-int4-kimi": kimi,
            "ct-int4-zp": ct_int4_zero_points, "awq": awq, "gptq": gptq_asymmetric, "gptq-sym": gptq_symmetric, "gptq-v2": gptq_second_format,
            "deepseek-v4": deepseek_v4}


def make(folder, families=()):
    os.makedirs(folder, exist_ok=True)
    for name in families or FAMILIES:
        FAMILIES[name](folder)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    make(sys.argv[1], sys.argv[2:])
