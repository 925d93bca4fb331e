#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "models/io/json_fields.h"
#include "models/io/model_texts.h"
#include "models/tensors.h"

// Checkpoints quantised by a published method, by "quantization_config" of config.json.
namespace lariat {

// Throws Error naming the key if a decoder's config has an unsupported quantisation method.
void check_quantization(const JsonFields& config);

// The JSON with a folder's quantisation method, and its file for errors: config.json, else a file of older
// quantisers next to it, as a {"quantization_config"}. Throws Error naming the file.
std::pair<nlohmann::json, std::string> quantization_config(const ModelTexts& texts);
// Name of the method; "": none.
std::string quantization_method(const ModelTexts& texts);

// Adds readers of X.experts.gate_proj.weight [experts, outputs, inputs] and others, and of biases, for
// gpt-oss's floats: transposed, with gate and up interleaved. Throws Error naming file and tensor.
void read_stacked_experts(Tensors& tensors);

// Combines a method's parts of each weight (X.qweight, X.scales, ...) into one tensor X.weight [outputs,
// inputs]. The parts decide which weights are quantised, and how; the config's lists of modules are ignored.
// Weights with unordered scales or unsupported group sizes are read as floats. Stacked experts stay stacked:
// X.experts.gate_proj.weight [experts, outputs, inputs]. All later reads are checked here. config, file: of
// quantization_config. Throws Error naming file and tensor.
void read_quantized(const nlohmann::json& config, const std::string& file, Tensors& tensors,
                    std::vector<std::string>& warnings);

}  // namespace lariat
