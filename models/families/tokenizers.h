#pragma once
#include "models/families/tokenizer_class.h"

// Tokenizer classes: defaults of __init__ in transformers 5.24 (models/*/tokenization_*.py), and custom code.
namespace lariat::tok {

// Prompts: make_context of qwen_generation_utils.py; build_prompt or build_chat_input of
// tokenization_chatglm.py. ChatGLM3 encodes each content separately, after a space.
inline constexpr const char* kQwenChat = R"({% if messages[0].role != 'system' %}<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %})";
inline constexpr const char* kChatGlm2Chat =
    R"([gMASK]sop{% for m in messages %}{% if m.role == 'user' %}[Round {{ loop.index0 // 2 + 1 }}]

问：{{ m.content }}

答：{% elif m.role == 'assistant' %}{{ m.content }}

{% else %}{{ raise_exception('ChatGLM2 knows user and assistant alone') }}{% endif %}{% endfor %})";
inline constexpr const char* kChatGlm3Chat =
    R"([gMASK]sop{% for m in messages %}<|{{ m.role }}|>{{ m.metadata }}
{% if m.content %} {{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %})";
inline constexpr const char* kGlm4Chat =
    R"([gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>{{ m.metadata }}
{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %})";

// tokenization_chatglm.py of THUDM/chatglm2-6b; chatglm3-6b uses the same class name.
inline constexpr TokenizerClass kChatGlm2 = {.names = "ChatGLMTokenizer",
                                             .version = "4.27.1",
                                             .path = "chatglm2",
                                             .added = "[MASK] [gMASK] [sMASK] sop eop",
                                             .prefix = "[gMASK] sop",
                                             .chat_template = kChatGlm2Chat};

inline constexpr TokenizerClass kTokenizerClasses[] = {
    // tokenization_qwen.py of Qwen/Qwen-7B.
    {.names = "QWenTokenizer",
     .added = "<|endoftext|> <|im_start|> <|im_end|> <|extra_{}|>",
     .numbered = 205,
     .tiktoken = "qwen.tiktoken",
     .pattern =
         R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     .nfc = true,
     .chat_template = kQwenChat,
     .chat_format = "chatml"},
    {"LlamaTokenizer", "bos_token <s> eos_token </s> unk_token <unk>", Pieces::kRebuilt},
    {"CodeLlamaTokenizer",
     "bos_token <s> eos_token </s> unk_token <unk> prefix_token ▁<PRE> middle_token ▁<MID> suffix_token "
     "▁<SUF> eot_token ▁<EOT> fill_token <FILL_ME>"},
    {"Qwen2Tokenizer Qwen3_5Tokenizer",
     "eos_token <|endoftext|> unk_token <|endoftext|> pad_token <|endoftext|>", Pieces::kNone},
    {"GPT2Tokenizer", "bos_token <|endoftext|> eos_token <|endoftext|> unk_token <|endoftext|>",
     Pieces::kNone},
    {"GPTNeoXTokenizer",
     "bos_token <|endoftext|> eos_token <|endoftext|> unk_token <|endoftext|> pad_token <|padding|>",
     Pieces::kNone},
    {"GemmaTokenizer", "bos_token <bos> eos_token <eos> unk_token <unk> pad_token <pad> mask_token <mask>"},
    {"CohereTokenizer",
     "bos_token <BOS_TOKEN> eos_token <|END_OF_TURN_TOKEN|> unk_token <UNK> sep_token <SEP> pad_token <PAD> "
     "cls_token <CLS> mask_token <MASK_TOKEN>",
     Pieces::kNone},
    {"BaichuanTokenizer BaiChuanTokenizer InternLMTokenizer InternLM2Tokenizer OrionTokenizer "
     "PreTrainedTokenizer TokenizersBackend"},
    kChatGlm2,
    {.names = "ChatGLMTokenizer",
     .added = "[MASK] [gMASK] [sMASK] sop eop <|system|> <|user|> <|assistant|> <|observation|>",
     .prefix = "[gMASK] sop",
     .chat_template = kChatGlm3Chat},
    // tokenization_chatglm.py and tokenizer_config.json of THUDM/glm-4-9b.
    {.names = "ChatGLM4Tokenizer",
     .added = "<|endoftext|> [MASK] [gMASK] [sMASK] <sop> <eop> <|system|> <|user|> <|assistant|> "
              "<|observation|> <|begin_of_image|> <|end_of_image|> <|begin_of_video|> <|end_of_video|>",
     .prefix = "[gMASK] <sop>",
     .pattern =
         R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     .chat_template = kGlm4Chat}};

}  // namespace lariat::tok
