"""The texts of make_tokenizer_golden.py: what the small tokenizers are trained on and what is encoded."""

import random

TEXT = """The river carries the boats past the old mill and the boats carry the grain to the town.
When the water is high, the miller doesn't sleep; when it's low, he'll walk along the bank and count stones.
There are 12 boats, 345 sacks and 67890 grains of sand in every story that the children tell each other.
She said that they'd come back in the spring, and we've waited, and I'm sure you're waiting too.
def count(boats):\n    total = 0\n    for boat in boats:\n        total += boat.sacks * 2\n    return total\n
if (x == 1 && y != 2) { return "nothing"; } // a comment, with some words in it\n\tint z[3] = {1, 2, 3};
河水把船带过老磨坊,船把粮食带到镇上。水高的时候,磨坊主不睡觉。孩子们讲故事。
川は船を運び、船は穀物を町へ運ぶ。水が高いとき、粉屋は眠らない。
Река несёт лодки мимо старой мельницы, а лодки везут зерно в город.
النهر يحمل القوارب إلى المدينة والقوارب تحمل القمح
Das Mädchen zählte die Körner über Nacht, während der Müller schlief. Où est l'été, où est la forêt?
The end of the story is the beginning of the story, and the story is told again and again and again.
""".split("\n")

# fmt: off
CASES = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n", "a", " a", "a ", "  a  ", "Hello, world!",
    "The river carries the boats", "   leading and trailing   ",
    "tabs\tand\nnewlines\r\n\r\nand \t mixed \n\n\n end", "word  two   three    four",
    "don't I'll WE'VE they'D it'S 'tis y'all 'ſ", "1 12 123 1234 12345 1234567890 3.14159 1,000,000",
    "٣٤٥ Ⅷ ½ ²³", "河水把船带过老磨坊", "水高的时候，磨坊主不睡觉。孩子们讲故事。", "川は船を運び、船は穀物を町へ運ぶ。", "日本語 テスト ﾊﾝｶｸ", "한국어 시험 ㄱㄴ 각",
    "النهر يحمل القوارب", "שלום עולם", "हिन्दी में लिखा", "ไทยไม่มีช่องว่าง", "Река несёт лодки",
    "Ελληνικά", "🙂", "👩‍👩‍👧‍👦 family", "🇩🇪🇫🇷 👍🏽", "e\u0301 vs \u00e9", "\u1e9b\u0323 \u1e9b \u0323",
    "q\u0307\u0323 q\u0323\u0307", "か\u3099 ガ", "\u0301leading mark", "Å Å Å ﬁ ﬂ Ω", "㌀ ﷺ",
    "a\u0300\u0301\u0302\u0303b", "zero\u200bwidth\u200djoin\u2060er\ufeff",
    "nbsp\u00a0and\u2003em\u3000ideographic\u202fnarrow", "\u180emongolian separator",
    "line\u2028para\u2029sep\u0085next\x0bvt\x0cff", "\x00\x01\x1f\x7f", "nul\x00inside", "𠮷野家 𝔘𝔫𝔦",
    "\U0010fffd\ue000", "ǅ ß ẞ İ ı", "def f(x):\n    return x + 1\n\n\nclass A:\n\tpass\n",
    "if (x == 1 && y != 2) { return \"s\"; } // c", "a->b->c; x <<= 2; y **= 3",
    "https://example.org/path?q=1&r=%20#frag", "snake_case camelCase PascalCase kebab-case __dunder__",
    "<html><body>&nbsp;</body></html>", "$$\\frac{a}{b}$$ \\n \\u0041", "...!!!???---===***",
    "(((((((((())))))))))", "a.b.c. A.B.C. etc.", "x" * 70, "ab" * 300, " " * 100, "\n" * 50, "the" * 100,
    "-" * 65, "河" * 60, "\u0301" * 40, "🙂" * 20, "<s>", "</s>", "<unk>", "<s> x", "x <s>", "x<s>y",
    "x <s> y </s> z", "<s><s></s>", "a </s>b", "<s", "s>", "<<s>>", "<|im_start|>user\nhi<|im_end|>\n",
    "<|endoftext|>", "<|begin_of_text|>The<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\n",
    "<think>\nhm\n</think>\n\n", "<tool_call>{}</tool_call>", "<|im_start", "<|im_end|><|im_end|>",
    "  <|im_end|>  ", "[strip] a [strip]b  [strip]", "a[word]b [word] c[word]", "x[left] y  [left]  z",
    "[norm] [NORM] x[norm]", "[a][ab][abc]", "[abcd]", "<0x41>", "<0xE4><0xB8>", "▁", "▁▁a▁b ▁", "Ġ Ċ ĉ",
    "ĠThe Ġriver", "_", "\u2581x y",
    "The end of the story is the beginning of the story, and the story is told again.",
]
# fmt: on


def fuzz(count, seed):
    rnd = random.Random(seed)
    atoms = [
        "the",
        " river",
        "Hello",
        "  ",
        "\n",
        "\t",
        "\r\n",
        "'s",
        "'LL",
        "12",
        "3456",
        "河水",
        "、",
        "テ",
        "한",
        "ع",
        "e\u0301",
        "\u0323",
        "\u0301",
        "🙂",
        "\u200d",
        "\u00a0",
        "\u3000",
        "_",
        "<s>",
        "</s>",
        "<|im_end|>",
        "<",
        "|>",
        "▁",
        "\u2028",
        "é",
        "ﬁ",
    ]
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(rnd.choice([2, 5, 9, 15])):
            pick = rnd.random()
            if pick < 0.8:
                parts.append(rnd.choice(atoms))
            elif pick < 0.9:
                parts.append(chr(rnd.randrange(0x20, 0x250)))
            else:
                parts.append(
                    chr(
                        rnd.choice(
                            [
                                rnd.randrange(0x370, 0x377),
                                rnd.randrange(0x4E00, 0x9FA5),
                                rnd.randrange(0x1F600, 0x1F640),
                                rnd.randrange(0x10000, 0x1000B),
                                rnd.randrange(0xE000, 0xE100),
                            ]
                        )
                    )
                )
        texts.append("".join(parts))
    return texts
