#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "models/files/tensors.h"
#include "models/io/json_fields.h"
#include "models/io/model_texts.h"

namespace lariat {

// Throws Error for an unsupported quantisation method.
void check_quantization(const JsonFields& config);

// JSON with a folder's quantisation method, and its file: config.json, else a file of older quantisers, as a
// {"quantization_config"}. Throws Error.
std::pair<nlohmann::json, std::string> quantization_config(const ModelTexts& texts);
// "": no method.
std::string quantization_method(const ModelTexts& texts);

// Reads gpt-oss's float experts as X.experts.gate_proj.weight [experts, outputs, inputs] and others. Throws
// Error.
void read_stacked_experts(Tensors& tensors);
// Transposes GPT-2's weights.
void read_conv1d(Tensors& tensors);

// Combines a method's parts of each weight (X.qweight, X.scales, ...) into one tensor X.weight [outputs,
// inputs]. The parts decide which weights are quantised; the config's lists of modules are ignored. Weights
// with unordered scales or unsupported group sizes are read as floats. Stacked experts become
// X.experts.gate_proj.weight [experts, outputs, inputs]. All later reads are checked here. config, file: of
// quantization_config. Throws Error.
void read_quantized(const nlohmann::json& config, const std::string& file, Tensors& tensors,
                    std::vector<std::string>& warnings);

}  // namespace lariat
