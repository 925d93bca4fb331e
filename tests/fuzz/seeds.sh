#!/usr/bin/env bash
# tests/fuzz/seeds.sh TARGET FOLDER: writes seeds to FOLDER, from the goldens.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
golden=$here/../golden
target=$1 out=$2
mkdir -p "$out"

# Headers, with zeros for data.
headers() {
  local file n
  for file in "$golden"/checkpoints/llama_sharded/*-of-*.safetensors; do
    n=$(od -An -tu8 -N8 "$file" | tr -d ' ')
    { head -c $((8 + n)) "$file"; head -c $(($(stat -c %s "$file") - 8 - n)) /dev/zero; } >"$out/$(basename "$file")"
  done
}

case $target in
  safetensors)
    headers
    cp "$golden"/checkpoints/llama_sharded/model.safetensors.index.json "$out/"
    ;;
  config)
    for file in "$golden"/checkpoints/*/config.json; do cp "$file" "$out/$(basename "$(dirname "$file")")"; done
    # Every scaling of rope/frequencies.json.
    grep -o '"rope_scaling": *{[^{}]*}' "$golden/rope/frequencies.json" | sort -u | head -n 40 | nl -w1 -s' ' |
      while read -r n scaling; do
        echo "{\"model_type\": \"llama\", \"max_position_embeddings\": 65536, $scaling}" >"$out/scaling-$n"
      done
    ;;
  gguf)
    # One file per kind of tokenizer, and stacked experts, by the Python package gguf.
    cp "$here"/seeds/gguf-* "$out/"
    ;;
  forms)
    for dir in "$golden"/forms/*/ "$golden"/checkpoints/gpt_oss*/; do
      { cat "$dir/config.json"; printf '\0'; cat "$dir/model.safetensors"; } >"$out/$(basename "$dir")"
    done
    ;;
  tokenizer_json)
    for dir in "$golden"/tokenizers/*-mini; do
      [ -f "$dir/tokenizer.json" ] || continue
      { cat "$dir/tokenizer.json"; printf '\0'; cat "$dir/tokenizer_config.json"; } >"$out/$(basename "$dir")"
    done
    ;;
  sentencepiece)
    for file in "$golden"/tokenizers/*/tokenizer.model; do cp "$file" "$out/$(basename "$(dirname "$file")")"; done
    # Normalization rules (41 -> 61, 42 43 -> 62 63 64, FF21 -> 41, E9 -> 65 301) and user-defined pieces:
    # spm_train --input=docs/context-extension.md --vocab_size=120 --model_type=unigram
    # --normalization_rule_tsv=RULES --user_defined_symbols="<u>,<us>"
    cp "$here/seeds/sentencepiece-charsmap.model" "$out/charsmap"
    ;;
  tiktoken)
    cp "$golden"/tokenizers/qwen-tiktoken-mini/qwen.tiktoken "$out/mini"
    head -n 256 "$out/mini" >"$out/bytes"
    { cat "$out/bytes"; printf 'YWI= 300\r\nYWI= 301\n'; } >"$out/twice"
    ;;
  text)
    # The first byte selects the tokenizer.
    for n in 0 1 2 3 4 5 6; do
      { printf "\\x$n"; head -c 600 "$golden/tokenizers/cases.json"; } >"$out/cases-$n"
      { printf "\\x$n"; printf 'Hello  world, it'"'"'s 2026.\n\n\t<s>[ab]\xe2\x96\x81x \xe6\xb2\xb3\xe5\xb7\x9d e\xcc\x81\xcc\xa3 \xf0\x9f\x98\x80 \xff\xfe'; } >"$out/words-$n"
    done
    ;;
  token_list)
    echo '1,2,3 4	5,2147483647' >"$out/list"
    echo '-1, 99999999999 x' >"$out/bad"
    ;;
  sweep_log)
    cat >"$out/log" <<'JSON'
{"lariat_sweep":1,"model":{"name":"m","fingerprint":"0","texts":"2"},"text":{"name":"t","bytes":9,"fingerprint":"1"},"original_ctx":64,"scalings":["none","dynamic-yarn","dca+yarn"],"methods":{"dca":"dca/chunk=48/window=16"},"lengths":[64,128],"perplexity":{"measured":true,"method":"sliding","stride":32,"max_tokens":512},"passkey":{"measured":true,"depths":[0.0,0.5],"trials":2,"seed":0,"task":"passkey","needles":4,"haystack":{"name":"noise"}},"speed":{"measured":true},"growing":{"measured":true,"step":32,"columns":["none","dynamic-yarn","dynamic-yarn stale"]},"options":{"backend":"cpu","dtype":"f32","k_dtype":"f16","v_dtype":"f32","factor":null,"theta":10000.0,"steps_per_octave":8,"stale_cache":false},"rows":{"metric":"all","prefix":true,"chat":false,"max_new_tokens":9},"shard":{"index":0,"count":1}}
{"kind":"answer","scaling":"none","length":64,"file":"f","line":3,"prompt":"0a","tokens":9,"new_tokens":2,"answer":"b","score":0.5}
{"kind":"perplexity","scaling":"none","length":64,"tokens":512,"nll":2.5,"ppl":12.2,"stderr":0.4,"timing":{"seconds":1.5}}
{"kind":"perplexity","scaling":"dynamic-yarn","length":64,"tokens":512,"nll":2.5,"ppl":12.2,"stderr":0.4}
{"kind":"perplexity","scaling":"none","length":128,"tokens":512,"nll":6.0,"ppl":403.0,"stderr":9.5}
{"kind":"perplexity","scaling":"dynamic-yarn","length":128,"tokens":512,"nll":null,"ppl":null,"stderr":null}
{"kind":"passkey","scaling":"none","length":64,"depth":0.5,"trials":2,"correct":2}
{"kind":"passkey","scaling":"dynamic-yarn","length":128,"depth":0.0,"trials":2,"correct":1}
{"kind":"growing","scaling":"none","length":128,"factor":2.0,"tokens":127,"nll":250.5,"ppl":7.2,"stderr":0.4,"positions":[{"from":0,"to":64,"tokens":63,"loss":2.5},{"from":64,"to":128,"tokens":64,"loss":4.0}]}
{"kind":"growing","scaling":"dynamic-yarn stale","length":128,"tokens":127,"nll":250.5,"ppl":7.2,"stderr":0.4,"positions":[{"from":0,"to":64,"tokens":63,"loss":null},{"from":64,"to":128,"tokens":64,"loss":3.0}]}
{"kind":"speed","scaling":"none","length":64,"cache_bytes":65536,"timing":{"prefill_tok_s":100.5,"decode_tok_s":20.25}}
JSON
    ;;
  rows)
    printf '{"input":"a\\nb","answer_prefix":" c:","length":131,"outputs":["\u0130x","b c"]}\n i\u0307X, Document 1:\nb\n\nAnswer: b' >"$out/ruler"
    printf '{"prompt":"a","answer":"xbcd","random_string_to_prepend":"x"}\nxbxcd' >"$out/mrcr"
    printf '{"question":"a","choices":["b","c"],"answer":1}\n\\boxed{B} Answer: **A' >"$out/choice"
    printf '{"prompt":"a","answer_nodes":["b","c"]}\nx\nFinal Answer: [b, c]' >"$out/nodes"
    ;;
  saved_context)
    # Three tokens, two with M-RoPE positions; and a prefix.
    cp "$here/seeds/saved_context" "$out/three"
    head -c 1500 "$here/seeds/saved_context" >"$out/cut"
    ;;
  chat_template)
    # One feature per line.
    sed -n 's/^{"source":"\(.*\)","\(text\|error\)":".*/\1/p' "$golden/chat_templates.json" |
      sed 's/\\\\/\x01/g; s/\\"/"/g; s/\\n/\x02/g; s/\x01/\\/g' | nl -w1 -s$'\t' |
      while IFS=$'\t' read -r n source; do printf '%s' "$source" | tr '\002' '\n' >"$out/feature-$n"; done
    ;;
  served)
    # The first byte selects a route; from 4 on, the bytes are a whole request.
    completion='{"prompt":[[5,6,7],"Once"],"max_tokens":1,"temperature":0,"logprobs":1,"echo":true,"seed":1,"stop":["x"],"n":2'
    printf '0%s}' "$completion" >"$out/completion"
    printf '0%s,"rope_scaling":"yarn/factor=2","position_method":"sinks/sinks=4/window=16"}' "$completion" >"$out/scaling"
    printf '1{"messages":[{"role":"developer","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":"b"}],
      "stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":2,"tools":[]}' >"$out/chat"
    printf '2{"prompt":"\u00e9 </s>","add_special_tokens":false}' >"$out/tokenize"
    printf '3{"tokens":[1,2,499]}' >"$out/detokenize"
    printf '4GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.0\r\nHost: [::1]:1\r\n\r\n' >"$out/get"
    printf '4POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n' >"$out/chunked"
    printf '4POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json; charset=utf-8\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}' >"$out/length"
    ;;
  *)
    echo "seeds.sh: no target $target" >&2
    exit 2
    ;;
esac
