"""A model class of lm-eval, in process: python -m lariat.lm_eval --model lariat --model_args path=DIR,rope_scaling=dynamic-yarn
--tasks hellaswag. Or import this module and call lm_eval.simple_evaluate(model="lariat", model_args=...)."""

import collections
import json

from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs

import lariat

NO_LIMIT = 1 << 30  # of tokens, with a scaling or position method


@register_model("lariat")
class LariatLM(TemplateLM):
    """path: folder or GGUF file; rope_scaling, position_method, dtype, kv_dtype, activations, threads, quantize: as of
    lariat.open(); max_length: tokens, beyond which contexts lose their beginning (default: the model's context, or no limit with
    a scaling); add_bos_token: None as the tokenizer says."""

    def __init__(self, path, max_length=None, max_gen_toks=256, add_bos_token=None, batch_size=None, device=None, **options):
        super().__init__()
        unused = {key: options.pop(key, None) for key in ("max_batch_size", "trust_remote_code")}  # of lm-eval's command line
        del unused, batch_size, device
        if "activations" not in options:
            options["activations"] = 16  # rounding to 8 bits depends on the other texts of a batch
        self.path, self.add_bos_token, self.max_gen_toks = str(path), add_bos_token, int(max_gen_toks)
        self.model = lariat.open(path, **options)
        self.prefix = self.model.tokenize("", special=True).tolist()
        self.bos = self.model.detokenize(self.prefix, special=True)
        scaled = any(options.get(key) not in (None, "none") for key in ("rope_scaling", "position_method"))
        self.max_length = int(max_length or (NO_LIMIT if scaled else self.model.facts["context"]))

    @property
    def eot_token_id(self):
        return self.model.eos_ids[0] if self.model.eos_ids else None

    @property
    def prefix_token_id(self):
        return self.prefix[0] if self.prefix else self.eot_token_id

    @property
    def tokenizer_name(self):
        return self.path.replace("/", "__")

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return self.model.chat(chat_history, answer=add_generation_prompt, tokenize=False)

    def tok_encode(self, string, add_special_tokens=None, **_):
        special = self.add_bos_token if add_special_tokens is None else add_special_tokens
        if add_special_tokens is None and self.bos and string.startswith(self.bos):
            special = False
        return self.model.tokenize(string, special=special).tolist()

    def _loglikelihood_tokens(self, requests, **_):
        prompts, continuations = [], []
        for _, context, continuation in requests:
            context = (context + continuation)[-(self.max_length + 1) :][: -len(continuation)]
            prompts.append(context)
            continuations.append(continuation)
        scores = self.model.score(prompts, continuations)
        return [(score["sum"], score["greedy"]) for score in scores]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        sums = []
        for (string,) in (request.args for request in requests):
            windows = utils.get_rolling_token_windows(self.tok_encode(string), self.prefix_token_id, self.max_length, 1)
            windows = [("", *utils.make_disjoint_window(window)) for window in windows]
            sums.append(sum(score for score, _ in self._loglikelihood_tokens(windows)))
        return sums

    def generate_until(self, requests, disable_tqdm=False):
        groups, answers = collections.defaultdict(list), [""] * len(requests)
        for i, request in enumerate(requests):
            groups[json.dumps(request.args[1], sort_keys=True)].append(i)
        for key, members in groups.items():
            options = normalize_gen_kwargs(json.loads(key), self.max_gen_toks)
            most = options["max_gen_toks"]
            prompts = [self.tok_encode(requests[i].args[0])[-max(self.max_length - most, 1) :] for i in members]
            stop = [text for text in handle_stop_sequences(options.get("until"), eos=None) if text]
            sampling = {name: options[name] for name in ("top_k", "top_p", "min_p", "seed") if name in options}
            found = self.model.generate(prompts, max_tokens=most, stop=stop, temperature=options["temperature"], continues=False,
                                        **sampling)  # fmt: skip
            for i, answer in zip(members, found):
                answers[i] = answer["text"]
        return answers


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
