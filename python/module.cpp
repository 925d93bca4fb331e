#include <nanobind/stl/unique_ptr.h>

#include "engine/interrupt.h"
#include "models/text/unicode.h"
#include "python/session.h"

namespace lariat::python {
namespace {

PyObject *error_type = nullptr, *usage_error_type = nullptr;

// Text in UTF-8, as messages may hold bytes of files.
void set_error(PyObject* type, const char* what) { PyErr_SetString(type, printable(what).c_str()); }

void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& e) {
    set_error(usage_error_type, e.what());
  } catch (const Error& e) {
    set_error(error_type, e.what());
  } catch (const Interrupted&) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
  } catch (const std::bad_alloc&) {
    PyErr_SetNone(PyExc_MemoryError);
  }
}

void add_errors(nb::module_& module) {
  nb::object error = nb::steal(PyErr_NewExceptionWithDoc(
      "lariat.Error", "A failure: file or setting, problem, remedy. The line of the command line.",
      PyExc_RuntimeError, nullptr));
  nb::object usage = nb::steal(
      PyErr_NewExceptionWithDoc("lariat.UsageError", "Wrong arguments.",
                                nb::make_tuple(error, nb::handle(PyExc_ValueError)).ptr(), nullptr));
  module.attr("Error") = error;
  module.attr("UsageError") = usage;
  error_type = error.release().ptr();
  usage_error_type = usage.release().ptr();
  nb::register_exception_translator(translate);
}

using nb::arg;
// Signatures in Python, of functions that take keyword arguments.
#define LARIAT_ROPE "rope_scaling: str | dict | None = None, position_method: str | None = None"
#define LARIAT_WRITING                                                                                      \
  "max_tokens: int = 128, stop: list[str] = [], temperature: float | None = None, top_k: int | None = "     \
  "None, "                                                                                                  \
  "top_p: float | None = None, min_p: float | None = None, repetition_penalty: float | None = None, "       \
  "seed: int | None = None, model_defaults: bool = False, logprobs: int | None = None, ignore_eos: bool = " \
  "False"
#define LARIAT_WRITING_HELP                                                                                \
  "max_tokens: most new tokens; stop: texts that end the answer; temperature 0 or None: greedy; seed: of " \
  "the draws;\n"                                                                                           \
  "model_defaults: unset settings from generation_config.json; logprobs: also ln p of new tokens."

void add_model_class(nb::module_& module) {
  module.def(
      "open", &open_model, arg("path"), arg("options"),
      nb::sig("def open(path: str | os.PathLike, *, " LARIAT_ROPE
              ", dtype: str | None = None, kv_dtype: str | None = None, activations: int | None = None, "
              "threads: int | None = None, quantize: str | None = None, rope_cache: str | None = None, "
              "text: bool = True) -> Model"),
      R"(Opens a Hugging Face checkpoint folder or a GGUF file on the CPU.

rope_scaling: a name ("dynamic-yarn", "yarn/factor=4", "none") or a dict as in config.json; position_method: as in
"dca/chunk=6144"; dtype: f32, bf16 or f16; kv_dtype: f32, f16, bf16 or "k=f16,v=q8"; activations: bits, 8 or 16;
threads: 0 all cores; quantize: q8 or q4; rope_cache: consistent or stale. None: the command line's default.
text=False: for ids alone, without a tokenizer.)");
  nb::class_<PyModel>(module, "Model", "An opened model. Its sessions share weights and threads.")
      .def("tokenize", &PyModel::tokenize, arg("text"), arg("special") = nb::none(),
           "Token ids, int32 [n]. special: whether a BOS begins them; None: as the tokenizer says.")
      .def("detokenize", &PyModel::detokenize, arg("ids"), arg("special") = false,
           "Text of ids [n]. special: with special tokens.")
      .def("chat", &PyModel::chat, arg("messages"), arg("answer") = true, arg("tokenize") = true,
           "Ids, int32 [n], of a list of {role, content} in the chat template; tokenize=False: the text.\n"
           "answer: with the start of an answer.")
      .def_prop_ro(
          "eos_ids", [](const PyModel& self) { return self.opened()->engine.eos_ids(); },
          "Ids that end a text.")
      .def_prop_ro("facts", &PyModel::facts, nb::sig("def facts(self) -> dict"),
                   "Dict of `lariat inspect --json`.")
      .def("session", &PyModel::session, arg("options"),
           nb::sig("def session(self, *, " LARIAT_ROPE ", rope_cache: str | None = None) -> Session"),
           "A new, empty session. Arguments as of open(); None: the model's.")
      .def("load", &PyModel::load, arg("file"), arg("options"),
           nb::sig("def load(self, file: str | os.PathLike, *, " LARIAT_ROPE
                   ", rope_cache: str | None = None) -> Session"),
           "A session from a saved KV cache, re-rotated to this scaling.")
      .def("join", &PyModel::join, arg("files"), arg("how") = "rotate", arg("options"),
           nb::sig("def join(self, files: list, how: str = 'rotate', *, rope_scaling: str | dict | None = "
                   "None) -> Session"),
           "A session of several saved KV caches, one after the other. how: rotate, recompute=N or anew.")
      .def("generate", &PyModel::generate, arg("prompts"), arg("options"),
           nb::sig("def generate(self, prompts: list, *, " LARIAT_WRITING
                   ", continues: bool = True, " LARIAT_ROPE ") -> list[dict]"),
           "Answers to texts or ids, a dict each: text, tokens (int32 [n]), stop_reason, "
           "prompt_tokens.\n\n" LARIAT_WRITING_HELP)
      .def(
          "score", &PyModel::score, arg("prompts"), arg("continuations"), arg("options"),
          nb::sig("def score(self, prompts: list, continuations: list, *, special: bool | None = "
                  "None, " LARIAT_ROPE ") -> list[dict]"),
          R"(Log-likelihoods of continuations, a dict each: sum (nats), per_byte, greedy (whether each token is the argmax),
tokens (int32 [n]), logprobs (float64 [n]). Texts or ids; common prefixes are computed once.)")
      .def("close", &PyModel::close, "Frees the model when its sessions are gone.");
}

void add_session_class(nb::module_& module) {
  nb::class_<PyContinuation>(module, "Continuation", "Iterator of a generated text's pieces.")
      .def(
          "__iter__", [](nb::object self) { return self; }, nb::sig("def __iter__(self) -> Continuation"))
      .def("__next__", &PyContinuation::next)
      .def("result", &PyContinuation::result, "The answer so far, as of Model.generate().");
  nb::class_<PySession>(
      module, "Session",
      "A text and its KV cache. n: tokens; V: vocabulary; H: KV heads; D: head size.\n"
      "For one thread at a time. A failed or interrupted call leaves the session as before.")
      .def("__len__", &PySession::length, "Tokens.")
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Session"))
      .def("__exit__", [](PySession& self, const nb::args&) { self.close(); })
      .def("close", &PySession::close, "Frees the cache.")
      .def_prop_ro("tokens", &PySession::tokens, nb::rv_policy::move, "Ids of the text, int32 [n].")
      .def("append", &PySession::append, arg("ids"), arg("logits") = nb::none(),
           nb::sig("def append(self, ids: object, logits: str | None = None) -> "
                   "numpy.typing.NDArray[numpy.float32] | None"),
           R"(Appends ids [n]. logits: None; "last": float32 [V], after the last id; "all": float32 [n, V].)")
      .def(
          "logprobs", &PySession::logprobs, arg("ids"), arg("top") = 0,
          R"(Appends ids [n] and returns ln p of each after the tokens before it, float64 [n]; NaN for the first of a text.
top: also ids, int32 [n, top], and their ln p, float64 [n, top]. Memory does not grow with V.)")
      .def(
          "trace", &PySession::trace, arg("ids"), arg("layer"),
          R"(Appends ids [n] and returns what a layer computed, as `lariat logits --trace`, float32 [n, width] each:
q, k, v, scores_max, attention, feed_forward, output.)")
      .def("fork", &PySession::fork, arg("length") = nb::none(),
           "A session of the first `length` tokens, which shares their cache until one of both writes.")
      .def("truncate", &PySession::truncate, arg("length"), "Keeps the first `length` tokens.")
      .def("generate", &PySession::generate, arg("prompt") = nb::none(), arg("options"),
           nb::keep_alive<0, 1>(),
           nb::sig("def generate(self, prompt: object = None, *, " LARIAT_WRITING ") -> Continuation"),
           "Appends a text or ids and continues; an iterator of the new text's "
           "pieces.\n\n" LARIAT_WRITING_HELP)
      .def("set_rope", &PySession::set_rope, arg("rope_scaling"),
           nb::sig("def set_rope(self, rope_scaling: str | dict) -> dict"),
           "Re-rotates the cached keys in place to another scaling. Returns the previous one, as in "
           "config.json.")
      .def(
          "rope", &PySession::rope, nb::sig("def rope(self) -> dict"),
          R"(The scaling as in config.json, and of the cached keys: inv_freq, float64 [rotated D / 2], radians per position;
attention_factor, of cos and sin; scale, of the slowest pair.)")
      .def("keys", &PySession::keys, arg("layer"), arg("rotated") = true,
           "Cached keys of a layer, float32 [H, n, D], a copy. rotated=False: rotated back to position 0.")
      .def("values", &PySession::values, arg("layer"), "Cached values of a layer, float32 [H, n, D], a copy.")
      .def("save", &PySession::save, arg("file"), "Saves the KV cache for Model.load().");
}

}  // namespace
}  // namespace lariat::python

NB_MODULE(_lariat, module) {
  module.doc() = "C++ part of lariat.";
  lariat::python::add_errors(module);
  lariat::python::add_model_class(module);
  lariat::python::add_session_class(module);
  lariat::python::add_measure(module);
}
