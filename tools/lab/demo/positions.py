"""Language models that differ only in their positions, with export to lariat and transformers.

The architecture is GPT-NeoX with a sequential residual, as in Bloom: LayerNorm with bias before attention and feed-forward, q, k
and v interleaved per head in one product, tanh GELU, biases everywhere, tied embeddings followed by a LayerNorm. The kinds:

    rope         q and k of every layer are rotated (RoFormer, arXiv 2104.09864)
    alibi        m_h (j - i) is added to the scores, m_h = 2^(-8h/n) (arXiv 2108.12409)
    sinusoidal   sines and cosines of the position are added to the normed embedding (arXiv 1706.03762)
    learned      a table with one row per position of a training window is added to the normed embedding
"""
import math
import shutil
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from export import TOKENIZER_CONFIG, write_json
from model import rotate, rotation
from tokens import BOS, EOS

KINDS = ["rope", "alibi", "sinusoidal", "learned"]


@dataclass
class BodyConfig:
    positions: str
    vocab_size: int = 1024
    hidden_size: int = 128
    num_hidden_layers: int = 4
    num_attention_heads: int = 4  # a power of two, as ALiBi uses other slopes otherwise
    rope_theta: float = 10000.0
    layer_norm_eps: float = 1e-5
    max_position_embeddings: int = 128  # length of the training windows

    @property
    def head_dim(self):
        return self.hidden_size // self.num_attention_heads


def alibi_slopes(heads):
    return torch.tensor([2.0 ** (-8 * (h + 1) / heads) for h in range(heads)])


def alibi_bias(heads, length):
    """[heads, length, length]: m_h (j - i) for key j and query i, -inf for later keys."""
    at = torch.arange(length)
    bias = alibi_slopes(heads)[:, None, None] * (at[None, :] - at[:, None])
    return bias.masked_fill(at[None, :] > at[:, None], float("-inf"))


def sinusoids(length, size):
    """[length, size], section 3.5 of arXiv 1706.03762: sin at even and cos at odd indices."""
    inv = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.outer(torch.arange(length, dtype=torch.float64), inv)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.input_norm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.query_key_value = nn.Linear(c.hidden_size, 3 * c.hidden_size)
        self.dense = nn.Linear(c.hidden_size, c.hidden_size)
        self.post_norm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.up = nn.Linear(c.hidden_size, 4 * c.hidden_size)
        self.down = nn.Linear(4 * c.hidden_size, c.hidden_size)

    def forward(self, x, rope, bias):
        b, t, _ = x.shape
        heads = self.query_key_value(self.input_norm(x)).view(b, t, self.c.num_attention_heads, 3, self.c.head_dim)
        q, k, v = heads.permute(3, 0, 2, 1, 4)
        if rope is not None:
            q, k = rotate(q, *rope), rotate(k, *rope)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None)
        x = x + self.dense(y.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.post_norm(x)), approximate="tanh"))


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed = nn.Embedding(c.vocab_size, c.hidden_size)
        self.embed_norm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.final_norm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif p.dim() == 2:
                std = 0.02 if "embed" in name else 0.5 / math.sqrt(p.shape[1])
                # Zero output at the start: depth does not disturb early training.
                nn.init.zeros_(p) if name.endswith(("dense.weight", "down.weight")) \
                    else nn.init.normal_(p, std=std)
        # Last: one seed gives all kinds the same other weights.
        self.embed_positions = None
        if c.positions == "learned":
            self.embed_positions = nn.Embedding(c.max_position_embeddings, c.hidden_size)
            nn.init.normal_(self.embed_positions.weight, std=0.02)

    def positions(self, length):
        """(cos and sin, bias of the scores, addend of the embeddings), None where unused."""
        c, device = self.c, self.embed.weight.device
        if c.positions == "rope":
            return [x.to(device) for x in rotation(c, length)], None, None
        if c.positions == "alibi":
            return None, alibi_bias(c.num_attention_heads, length).to(device), None
        if c.positions == "sinusoidal":
            return None, None, sinusoids(length, c.hidden_size).to(device)
        if length > c.max_position_embeddings:
            raise ValueError(f"learned positions end at {c.max_position_embeddings}; the window has {length}")
        return None, None, self.embed_positions.weight[:length]

    def forward(self, ids):
        rope, bias, added = self.positions(ids.shape[1])
        x = self.embed_norm(self.embed(ids))
        if added is not None:
            x = x + added
        for layer in self.layers:
            x = layer(x, rope, bias)
        return F.linear(self.final_norm(x), self.embed.weight)  # tied embeddings


# --- measuring ---

@torch.no_grad()
def chunk_losses(model, tokens, ctx, batch=16):
    """The losses that `lariat perplexity --method chunks` scores: BOS and text are cut into chunks of ctx, BOS replaces a chunk's
    first token, and positions ctx/2 + 1 ... ctx - 1 count."""
    stream = torch.tensor([BOS, *tokens], device=model.embed.weight.device)
    chunks = stream[:len(stream) // ctx * ctx].view(-1, ctx).clone()
    chunks[:, 0] = BOS
    losses = []
    for part in chunks.split(batch):
        logits = model(part[:, :-1])[:, ctx // 2:]
        losses.append(F.cross_entropy(logits.transpose(1, 2), part[:, ctx // 2 + 1:], reduction="none"))
    return torch.cat(losses).double().flatten().cpu()


def perplexity(losses):
    """(perplexity, standard error), as reported by lariat."""
    ppl = losses.mean().exp().item()
    return ppl, ppl * losses.std(correction=0).item() / math.sqrt(len(losses) - 1)


# --- files ---

def load_body(run):
    """Loads the model of a folder written by `train.py --positions`."""
    saved = torch.load(run / "checkpoint.pt", map_location="cpu", weights_only=True)
    model = Body(BodyConfig(**saved["config"]))
    model.load_state_dict(saved["model"])
    return model.eval()


def neox_tensors(model):
    """Converts to GPTNeoXForCausalLM, which has no norm after the embeddings: the table of normed rows includes that norm, since
    it sees one token at a time; the head keeps the original rows."""
    tensors = {
        "gpt_neox.embed_in.weight": model.embed_norm(model.embed.weight),
        "embed_out.weight": model.embed.weight,
    }
    return tensors | renamed(model, "gpt_neox.layers.", "attention.", "gpt_neox.final_layer_norm")


def bloom_tensors(model):
    tensors = {
        "transformer.word_embeddings.weight": model.embed.weight,
        "transformer.word_embeddings_layernorm.weight": model.embed_norm.weight,
        "transformer.word_embeddings_layernorm.bias": model.embed_norm.bias,
    }
    return tensors | renamed(model, "transformer.h.", "self_attention.", "transformer.ln_f")


def renamed(model, layers, attention, final_norm):
    """Tensors that differ from transformers' only in the prefix of their names."""
    names = {"input_norm": "input_layernorm", "query_key_value": attention + "query_key_value",
             "dense": attention + "dense", "post_norm": "post_attention_layernorm",
             "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h"}
    tensors = {}
    for i, layer in enumerate(model.layers):
        for ours, theirs in names.items():
            for kind, p in getattr(layer, ours).named_parameters():
                tensors[f"{layers}{i}.{theirs}.{kind}"] = p
    for kind, p in model.final_norm.named_parameters():
        tensors[f"{final_norm}.{kind}"] = p
    return tensors


def hf_config(c):
    common = {"bos_token_id": BOS, "eos_token_id": EOS, "torch_dtype": "float32", "use_cache": True,
              "vocab_size": c.vocab_size, "hidden_size": c.hidden_size}
    if c.positions == "alibi":
        return common | {
            "architectures": ["BloomForCausalLM"], "model_type": "bloom", "n_layer": c.num_hidden_layers,
            "n_head": c.num_attention_heads, "layer_norm_epsilon": c.layer_norm_eps, "seq_length": c.max_position_embeddings,
            "apply_residual_connection_post_layernorm": False, "tie_word_embeddings": True}
    return common | {
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "num_hidden_layers": c.num_hidden_layers,
        "num_attention_heads": c.num_attention_heads, "intermediate_size": 4 * c.hidden_size,
        "layer_norm_eps": c.layer_norm_eps, "max_position_embeddings": c.max_position_embeddings,
        "hidden_act": "gelu_pytorch_tanh", "rotary_pct": 1.0, "rotary_emb_base": c.rope_theta,
        "use_parallel_residual": False, "attention_bias": True, "tie_word_embeddings": False}


@torch.no_grad()
def export_body(model, tokenizer_model, out):
    """Writes a Hugging Face folder in f32 of a family that lariat supports; positions: rope or alibi."""
    out.mkdir(parents=True, exist_ok=True)
    tensors = {"rope": neox_tensors, "alibi": bloom_tensors}[model.c.positions](model)
    save_file({name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()},
              out / "model.safetensors", metadata={"format": "pt"})
    write_json(out / "config.json", dict(sorted(hf_config(model.c).items())))
    write_json(out / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS})
    write_json(out / "tokenizer_config.json", TOKENIZER_CONFIG)
    shutil.copyfile(tokenizer_model, out / "tokenizer.model")
