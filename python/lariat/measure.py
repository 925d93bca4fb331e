"""Measurements as lists of dicts, as the command line's: pandas.DataFrame(records).

Common arguments, by default the model's: rope_scaling, position_method and rope_cache, as of lariat.open().
"""

from . import _lariat

__all__ = ["passkey", "perplexity", "sweep"]
DEPTHS = (0, 0.25, 0.5, 0.75, 1)


def perplexity(model, file, ctx=None, *, method="sliding", stride=256, step=0, max_tokens=0, buckets=32, rope_scaling=None,
               position_method=None, rope_cache=None):  # fmt: skip
    """Perplexity of a text file, as `lariat perplexity`: a dict per length of `ctx` (tokens, one or a list).

    method: sliding, chunks, growing or anchored; stride, step: tokens (step 0: the method's); max_tokens: 0 all; buckets: number
    or rising ends of "positions". "nll": sum in nats; "ppl": exp(nll / tokens); "stderr": its standard error.
    """
    return _lariat.perplexity(model, file, ctx=ctx, method=method, stride=stride, step=step, max_tokens=max_tokens,
                              buckets=buckets, rope_scaling=rope_scaling, position_method=position_method,
                              rope_cache=rope_cache)  # fmt: skip


def passkey(model, lengths=None, *, depths=DEPTHS, trials=5, seed=0, task="passkey", needles=4, haystack="noise", chat=False,
            rope_scaling=None, position_method=None, rope_cache=None):  # fmt: skip
    """Retrieval from long prompts, as `lariat passkey`: a dict per length (tokens) and depth (0 to 1).

    task: passkey, multikey, multivalue, multiquery or tracking; haystack: noise or a file; chat: in the chat template.
    """
    return _lariat.passkey(model, lengths=lengths, depths=list(depths), trials=trials, seed=seed, task=task, needles=needles,
                           haystack=str(haystack), chat=chat, rope_scaling=rope_scaling, position_method=position_method,
                           rope_cache=rope_cache)  # fmt: skip


def sweep(model, file=None, *, scalings=(), lengths=None, quick=False, growing=True, perplexity=True, passkey=True, speed=True,
          stale=True, method="sliding", stride=0, max_tokens=None, depths=DEPTHS, trials=5, seed=0, task="passkey"):  # fmt: skip
    """Compares RoPE scalings, as `lariat sweep`: a dict per measurement, scaling and length (tokens).

    file: a text, or None for heldout.txt in the model's folder; scalings: names such as "yarn/factor=4", "dca" or "dca+yarn";
    stale: growing contexts of dynamic scalings also with stale keys.
    """
    return _lariat.sweep(model, file=file, scalings=list(scalings), lengths=lengths, quick=quick, growing=growing,
                         perplexity=perplexity, passkey=passkey, speed=speed, stale=stale, method=method, stride=stride,
                         max_tokens=max_tokens, depths=list(depths), trials=trials, seed=seed, task=task)  # fmt: skip
