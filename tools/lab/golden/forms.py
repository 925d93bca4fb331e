"""Tiny Llamas with weights in published quantization formats, in tests/golden/forms (numpy alone).

Each folder has random quantized values and scales, packed like the format's original code and dequantized here by its formula;
"logits" are a float64 forward pass with the dequantized weights, "k_proj" is one weight as floats.
"""

import json
import pathlib
import struct

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "tests" / "golden" / "forms"
HIDDEN, INNER, HEADS, KV, DIM, VOCAB = 64, 96, 2, 1, 32, 48
LAYER = "model.layers.0."
SHAPES = {"self_attn.q_proj": (HEADS * DIM, HIDDEN), "self_attn.k_proj": (KV * DIM, HIDDEN),
          "self_attn.v_proj": (KV * DIM, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * DIM),
          "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN),
          "mlp.down_proj": (HIDDEN, INNER)}  # fmt: skip
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
          "intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": DIM,
          "num_hidden_layers": 1, "vocab_size": VOCAB, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "max_position_embeddings": 64, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}  # fmt: skip
TYPES = {"F32": "<f4", "F16": "<f2", "I32": "<i4", "I64": "<i8", "U32": "<u4", "I8": "i1", "U8": "u1"}


def as_bf16(values):
    """Truncates to bf16."""
    return (np.asarray(values, "<f4").view("<u4") & 0xFFFF0000).view("<f4")


def encoded(dtype, values):
    if dtype == "BF16":
        return (np.asarray(values, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    if dtype in ("F8_E4M3", "F8_E8M0"):
        return np.asarray(values, "u1").tobytes()
    return np.ascontiguousarray(values).astype(TYPES[dtype]).tobytes()


def save(file, tensors):
    header, at = {}, 0
    data = {name: encoded(dtype, values) for name, (dtype, values) in tensors.items()}
    for name, (dtype, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(np.shape(values)), "data_offsets": [at, at + len(data[name])]}
        at += len(data[name])
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data.values()))


def e4m3(byte):
    sign, exponent, mantissa = -1.0 if byte & 0x80 else 1.0, byte >> 3 & 15, byte & 7
    return sign * (mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10))


E4M3 = np.array([e4m3(b) for b in range(256)])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023,
                1.0], "<f4")  # fmt: skip
FP4 = np.array([0, 0.0625, 8, 12, 4, 6, 2, 3, -0.0, -0.0625, -8, -12, -4, -6, -2, -3], "<f4") / np.float32(12)


class Maker:
    def __init__(self, name, seed):
        self.rng = np.random.default_rng(seed)
        self.name, self.tensors, self.floats = name, {}, {}

    def scales(self, shape, size, dtype="F16", signed=False):
        """Positive numbers of about `size`, exact in the dtype."""
        values = size * self.rng.uniform(0.5, 1.5, shape) * (self.rng.choice([-1, 1], shape) if signed else 1)
        return as_bf16(values) if dtype == "BF16" else values.astype(TYPES[dtype]).astype("<f4")

    def integers(self, lo, hi, shape):
        return self.rng.integers(lo, hi, shape, dtype=np.int64)

    def put(self, module, **parts):
        for end, part in parts.items():
            self.tensors[f"{LAYER}{module}.{end}"] = part

    def finish(self, quantization, head=None, key="quantization_config"):
        plain = {"model.embed_tokens": (VOCAB, HIDDEN), "lm_head": (VOCAB, HIDDEN), "model.norm": (HIDDEN,),
                 LAYER + "input_layernorm": (HIDDEN,), LAYER + "post_attention_layernorm": (HIDDEN,)}  # fmt: skip
        for name, shape in plain.items():
            if name in self.floats:
                continue
            values = as_bf16(self.rng.normal(0, 0.3, shape) + (len(shape) == 1))
            self.floats[name] = values
            self.tensors[name + ".weight"] = ("BF16", values)
        dir = FOLDER / self.name
        dir.mkdir(parents=True, exist_ok=True)
        (dir / "config.json").write_text(json.dumps(CONFIG | {key: quantization}, indent=1) + "\n")
        save(dir / "model.safetensors", self.tensors)
        tokens = np.arange(7, 7 + 16) * 5 % VOCAB
        golden = {"tokens": ("I64", tokens), "logits": ("F32", logits(self.floats, tokens)),
                  "k_proj": ("F32", self.floats["self_attn.k_proj"])}  # fmt: skip
        save(dir / "golden.safetensors", golden)


def logits(w, tokens):
    w = {name: np.asarray(values, "f8") for name, values in w.items()}

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w[name]

    def heads(x, n):
        x = x.reshape(len(tokens), n, DIM).transpose(1, 0, 2)
        return np.repeat(x, HEADS // n, 0)

    angles = np.arange(len(tokens))[:, None] * 10000.0 ** (-np.arange(DIM // 2) * 2 / DIM)

    def rotate(x):
        a, b = x[..., : DIM // 2], x[..., DIM // 2 :]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    x = w["model.embed_tokens"][tokens]
    h = norm(x, LAYER + "input_layernorm")
    q, k, v = (heads(h @ w[f"self_attn.{p}_proj"].T, n) for p, n in (("q", HEADS), ("k", KV), ("v", KV)))
    scores = rotate(q) @ rotate(k).transpose(0, 2, 1) / np.sqrt(DIM)
    scores = np.where(np.tril(np.ones(scores.shape[1:])) > 0, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    out = (p / p.sum(-1, keepdims=True)) @ v
    x = x + out.transpose(1, 0, 2).reshape(len(tokens), -1) @ w["self_attn.o_proj"].T
    h = norm(x, LAYER + "post_attention_layernorm")
    gate = h @ w["mlp.gate_proj"].T
    x = x + (gate / (1 + np.exp(-gate)) * (h @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
    return norm(x, "model.norm") @ w["lm_head"].T


def spread(scales, shape, block):
    """A grid of scales over a matrix."""
    return np.repeat(np.repeat(scales, block[0], 0), block[1], 1)[: shape[0], : shape[1]]


def ceil(a, b):
    return -(-a // b)


def grid(shape, block):
    return ceil(shape[0], block[0]), ceil(shape[1], block[1])


def random_e4m3(maker, shape):
    codes = maker.integers(0, 256, shape)
    return np.where((codes & 0x7F) >= 0x70, codes & 0x8F, codes)  # no NaN, at most 112


def fp8():
    m = Maker("fp8", 1)
    for module, shape in SHAPES.items():
        codes = random_e4m3(m, shape)
        kind = module[-6:-5] if "attn" in module else module[4:8]
        block, end, dtype = (64, 32), "weight_scale_inv", {"v": "BF16", "o": "F8_E8M0"}.get(kind, "F32")
        if kind == "gate":
            block, end = shape, "weight_scale"
            m.put(module, input_scale=("F32", np.float32(0.5)))
        if kind == "up_p":
            block, end = (1, HIDDEN), "weight_scale"
        if dtype == "F8_E8M0":
            stored = m.integers(119, 122, grid(shape, block))
            scales = 2.0 ** (stored - 127)
        else:
            stored = scales = m.scales(grid(shape, block), 0.01, dtype)
        m.put(module, weight=("F8_E4M3", codes), **{end: (dtype, stored[0, 0] if kind == "gate" else stored)})
        m.floats[module] = (E4M3[codes] * spread(scales, shape, block)).astype("<f4")
    m.finish({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [64, 32]})


def fbgemm_fp8():
    m = Maker("fbgemm_fp8", 2)
    for module, shape in SHAPES.items():
        codes, scales = random_e4m3(m, shape), m.scales((shape[0], 1), 0.01, "F32")
        m.put(module, weight=("F8_E4M3", codes), weight_scale=("F32", scales))
        m.floats[module] = (E4M3[codes] * scales).astype("<f4")
    m.finish({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]})


def compressed():
    m = Maker("compressed_tensors", 3)
    kinds = {"q": ("F8_E4M3", "BF16", None), "k": ("I8", "F16", (1, HIDDEN)), "v": ("I8", "F32", (1, 32)),
             "o": ("I8", "BF16", (1, HIDDEN)), "g": ("F8_E4M3", "F16", (1, 32)), "u": ("F8_E4M3", "F32", (64, 32)),
             "d": ("I8", "F32", None)}  # fmt: skip
    for module, shape in SHAPES.items():
        kind = module.split(".")[1][0]
        width, dtype, block = kinds[kind]
        codes = random_e4m3(m, shape) if width != "I8" else m.integers(-128, 128, shape)
        scales = m.scales(grid(shape, block or shape), 0.01 if width != "I8" else 0.002, dtype)
        values = E4M3[codes] if width != "I8" else codes.astype("f8")
        if kind == "o":
            zeros = m.integers(-20, 20, scales.shape)
            m.put(module, weight_zero_point=("I8", zeros))
            values = values - spread(zeros, shape, block)
        m.put(module, weight=(width, codes), weight_scale=(dtype, scales if block else scales.reshape(1)))
        m.floats[module] = (values * spread(scales, shape, block or shape)).astype("<f4")
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": "64x32", "group_size": None}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    m.finish({"quant_method": "compressed-tensors", "format": "naive-quantized", "config_groups": groups,
              "ignore": ["lm_head"], "sparsity_config": {"format": "dense"}, "kv_cache_scheme": None})  # fmt: skip


def pack_rows(codes, bits):
    """Packs along the last dimension, first value in the low bits of 32."""
    per = 32 // bits
    codes = np.pad(codes, [(0, 0), (0, -codes.shape[1] % per)]).reshape(codes.shape[0], -1, per)
    return (codes << (np.arange(per) * bits)).sum(-1).astype("u4").view("i4")


def order(m, shape, group):
    of = np.arange(shape[1]) // group
    return m.rng.permutation(of)


def pack_quantized():
    m = Maker("pack_quantized", 4)
    kinds = {"q": (4, 32, "BF16", ""), "k": (4, 64, "F16", "zero"), "v": (8, 64, "F32", ""),
             "o": (4, 32, "F16", "order"), "g": (2, 32, "F16", ""), "u": (8, 32, "BF16", "zero"),
             "d": (4, 32, "F16", "sorted")}  # fmt: skip
    for module, shape in SHAPES.items():
        bits, group, dtype, kind = kinds[module.split(".")[1][0]]
        codes, of = m.integers(0, 1 << bits, shape), np.arange(shape[1]) // group
        scales = m.scales((shape[0], shape[1] // group), 0.5 / (1 << bits), dtype)
        zeros = np.full(scales.shape, 1 << (bits - 1))
        if kind == "zero":
            zeros = m.integers(0, 1 << bits, scales.shape)
            m.put(module, weight_zero_point=("I32", pack_rows(zeros.T, bits).T))
        if kind in ("order", "sorted"):
            of = order(m, shape, group) if kind == "order" else of
            m.put(module, weight_g_idx=("I32", of))
        m.put(module, weight_packed=("I32", pack_rows(codes, bits)), weight_scale=(dtype, scales),
              weight_shape=("I64", shape))  # fmt: skip
        m.floats[module] = ((codes - zeros[:, of]) * scales[:, of]).astype("<f4")
    groups = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}}
    m.finish({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups,
              "ignore": ["lm_head"], "quantization_status": "compressed"})  # fmt: skip


def pack_nibbles(codes):
    return codes[:, ::2] | codes[:, 1::2] << 4


def mxfp4_parts(m, shape):
    codes, exponents = m.integers(0, 16, shape), m.integers(120, 125, (shape[0], shape[1] // 32))
    return codes, exponents, (E2M1[codes] * spread(2.0 ** (exponents - 127), shape, (1, 32))).astype("<f4")


def mxfp4_packed():
    m = Maker("mxfp4_packed", 5)
    for module, shape in SHAPES.items():
        codes, exponents, m.floats[module] = mxfp4_parts(m, shape)
        m.put(module, weight_packed=("U8", pack_nibbles(codes)), weight_scale=("U8", exponents))
    m.finish({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "ignore": ["lm_head"]})


def gptq_parts(m, module, bits, group, kind, version):
    """kind: sym, eight (version 2's layout without its marker), zero, or order with zeros."""
    rows, cols = shape = SHAPES[module]
    codes, of = m.integers(0, 1 << bits, shape), np.arange(cols) // group
    groups = ceil(cols, group)
    scales = m.scales((groups, rows), 0.5 / (1 << bits), "F16")
    zeros = np.full((groups, rows), 1 << (bits - 1))
    if kind in ("zero", "order"):
        zeros = m.integers(0, 1 << bits, zeros.shape)
    packed = pack_rows(zeros, bits).view("u4")
    if version == 1 and kind != "eight":
        packed = packed - np.uint32(0x11111111 if bits == 4 else 0x01010101)
    of = order(m, shape, group) if kind == "order" else of
    m.put(module, qweight=("I32", pack_rows(codes, bits).T), qzeros=("I32", packed.view("i4")), scales=("F16", scales))
    if module != "mlp.gate_proj":
        m.put(module, g_idx=("I32", of))
    m.floats[module] = ((codes - zeros[of].T) * scales[of].T).astype("<f4")


def gptq():
    m = Maker("gptq", 6)
    for module, kind in zip(SHAPES, ("sym", "zero", "sym", "order", "sym", "eight", "zero"), strict=True):
        gptq_parts(m, module, 8 if "v_" in module else 4, 32, kind, 1)
    m.finish({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": True})


def gptq_v2():
    m = Maker("gptq_v2", 7)
    for module in SHAPES:
        gptq_parts(m, module, 8 if "q_" in module else 4, SHAPES[module][1], "zero", 2)
    m.finish({"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": False, "checkpoint_format": "gptq_v2"})


def awq():
    m = Maker("awq", 8)

    def pack(codes):
        codes = codes.reshape(codes.shape[0], -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
        return pack_rows(codes.reshape(codes.shape[0], -1), 4)

    for module, (rows, cols) in SHAPES.items():
        codes, zeros = m.integers(0, 16, (cols, rows)), m.integers(0, 16, (cols // 32, rows))
        scales = m.scales((cols // 32, rows), 0.03, "F16")
        if "o_proj" in module:
            zeros[:] = 8
        else:
            m.put(module, qzeros=("I32", pack(zeros)))
        m.put(module, qweight=("I32", pack(codes)), scales=("F16", scales))
        m.floats[module] = ((codes - np.repeat(zeros, 32, 0)) * np.repeat(scales, 32, 0)).T.astype("<f4")
    m.finish({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"})


def pack_stream(codes, bits):
    """Packs each row into a dense bit stream."""
    stream = (codes[:, :, None] >> np.arange(bits) & 1).reshape(codes.shape[0], -1).astype("u1")
    return np.packbits(stream, axis=1, bitorder="little").view("<u4")


def mlx_parts(m, name, shape, bits, group, dtype):
    codes = m.integers(0, 1 << bits, shape)
    scales = m.scales((shape[0], shape[1] // group), 0.5 / (1 << bits), dtype, signed=True)
    biases = m.scales(scales.shape, 0.25, dtype, signed=True)
    for end, part in (("weight", ("U32", pack_stream(codes, bits))), ("scales", (dtype, scales)),
                      ("biases", (dtype, biases))):  # fmt: skip
        m.tensors[f"{name}.{end}"] = part
    full = (1, group)
    return (codes * spread(scales, shape, full).astype("f8") + spread(biases, shape, full)).astype("<f4")


def mlx():
    m = Maker("mlx", 9)
    own = {"self_attn.k_proj": (3, 32), "self_attn.v_proj": (8, 64), "self_attn.o_proj": (2, 64),
           "mlp.gate_proj": (5, 32), "mlp.up_proj": (6, 64)}  # fmt: skip
    quantization = {"group_size": 32, "bits": 4, "mode": "affine"}
    for module, shape in SHAPES.items():
        bits, group = own.get(module, (4, 32))
        m.floats[module] = mlx_parts(m, LAYER + module, shape, bits, group, "BF16" if "q_" in module else "F16")
        if module in own:
            quantization["language_model." + LAYER + module] = {"group_size": group, "bits": bits}
    for name, bits in (("model.embed_tokens", 4), ("lm_head", 8)):
        m.floats[name] = mlx_parts(m, name, (VOCAB, HIDDEN), bits, 32, "F32")
    quantization["lm_head"] = {"group_size": 32, "bits": 8}
    m.finish(quantization, key="quantization")


def mlx_mxfp4():
    m = Maker("mlx_mxfp4", 10)
    for module, shape in SHAPES.items():
        codes, exponents, m.floats[module] = mxfp4_parts(m, shape)
        m.put(module, weight=("U32", pack_stream(codes, 4)), scales=("U8", exponents))
    m.floats["lm_head"] = mlx_parts(m, "lm_head", (VOCAB, HIDDEN), 6, 64, "BF16")
    m.finish({"group_size": 32, "bits": 4, "mode": "mxfp4", "model.embed_tokens": False,
              "lm_head": {"group_size": 64, "bits": 6, "mode": "affine"}})  # fmt: skip


def bitsandbytes():
    m = Maker("bitsandbytes", 11)
    kinds = {"q": ("nf4", 64, False), "k": ("nf4", 64, True), "v": ("fp4", 64, False), "o": ("fp4", 128, True),
             "g": ("nf4", 64, False), "d": ("nf4", 64, True)}  # fmt: skip
    for module, shape in SHAPES.items():
        kind, name = module.split(".")[1][0], f"{LAYER}{module}.weight"
        if kind == "u":
            codes, scb = m.integers(-127, 128, shape), m.scales((shape[0],), 0.3, "F32")
            m.tensors |= {name: ("I8", codes), f"{LAYER}{module}.SCB": ("F32", scb),
                          f"{LAYER}{module}.weight_format": ("U8", np.uint8(0))}  # fmt: skip
            m.floats[module] = (codes * scb[:, None].astype("f8") / 127).astype("<f4")
            continue
        quant_type, block, nested = kinds[kind]
        table, count = NF4 if quant_type == "nf4" else FP4, shape[0] * shape[1]
        codes, blocks = m.integers(0, 16, count), ceil(count, block)
        state = {"quant_type": quant_type, "blocksize": block, "dtype": "bfloat16", "shape": list(shape)}
        if nested:
            inner, outer = m.integers(0, 256, blocks), m.scales((ceil(blocks, 256),), 0.1, "F32")
            code, offset = np.sort(m.rng.uniform(-1, 1, 256)).astype("<f4"), np.float32(0.25)
            absmax = code[inner] * outer[np.arange(blocks) // 256] + offset
            m.tensors |= {name + ".absmax": ("U8", inner), name + ".nested_absmax": ("F32", outer),
                          name + ".nested_quant_map": ("F32", code)}  # fmt: skip
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": float(offset)}
        else:
            absmax = m.scales((blocks,), 0.3, "F32")
            m.tensors[name + ".absmax"] = ("F32", absmax)
        packed = (codes[::2] << 4 | codes[1::2]).reshape(-1, 1).astype("u1")
        if kind == "g":  # bnb_4bit_quant_storage bfloat16
            packed = packed.reshape(-1, 2)
            m.tensors[name] = ("BF16", (packed.view("<u2").astype("<u4") << 16).view("<f4"))
        else:
            m.tensors[name] = ("U8", packed)
        text = np.frombuffer(json.dumps(state).encode(), "u1")
        m.tensors[name + ".quant_map"] = ("F32", table)
        m.tensors[f"{name}.quant_state.bitsandbytes__{quant_type}"] = ("U8", text)
        m.floats[module] = (table[codes] * absmax[np.arange(count) // block]).reshape(shape).astype("<f4")
    m.finish({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
              "bnb_4bit_use_double_quant": True, "llm_int8_skip_modules": ["lm_head"]})  # fmt: skip


METHODS = (fp8, fbgemm_fp8, compressed, pack_quantized, mxfp4_packed, gptq, gptq_v2, awq, mlx, mlx_mxfp4, bitsandbytes)


def forms():
    for method in METHODS:
        method()


if __name__ == "__main__":
    forms()
