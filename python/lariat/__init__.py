"""LLM inference with a consistent RoPE cache.

    import lariat
    model = lariat.open("configs/demo", rope_scaling="dynamic-yarn")
    print(model.generate(["Once upon a time"], max_tokens=32)[0]["text"])
    session = model.session()
    logits = session.append(model.tokenize("Once upon"), logits="last")   # float32 [vocabulary]

A Model opens weights once; a Session is a text and its KV cache. lariat.measure returns the command line's measurements
as lists of dicts, lariat.lm_eval is a model class of lm-eval, lariat.search searches RoPE factors. Ids are int32 [n] or
lists; log-probabilities are in nats.
"""

from ._lariat import Continuation, Error, Model, Session, UsageError, open
from . import measure

__all__ = ["Continuation", "Error", "Model", "Session", "UsageError", "measure", "open"]
__version__ = "0.1.0"
