#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "models/io/json_fields.h"
#include "models/io/model_texts.h"
#include "models/tensors.h"

// Checkpoints that a published method has quantised, as "quantization_config" of config.json says.
namespace lariat {

// Throws Error naming the key where a decoder's config says that a method has quantised the weights whose
// files are not read.
void check_quantization(const JsonFields& config);

// The JSON that says which method has quantised a folder's weights, and the file to name in errors:
// config.json or, where that is silent, a file that quantisers once wrote next to it, as a
// {"quantization_config"}. Throws Error naming the file.
std::pair<nlohmann::json, std::string> quantization_config(const ModelTexts& texts);
// The method's name in it; "": none.
std::string quantization_method(const ModelTexts& texts);

// Makes readers of X.experts.gate_proj.weight [experts, outputs, inputs] and so on, and of their biases, for
// the floats of gpt-oss, whose tensors are transposed and have gate and up in turn. Throws Error naming file
// and tensor.
void read_stacked_experts(Tensors& tensors);

// Makes one tensor, X.weight [outputs, inputs], of the parts that a method has of each weight (X.qweight,
// X.scales, ...). Which weights are quantised, and how, is seen from their parts: lists of modules that are
// not change nothing. Weights whose inputs have their scales in no order, or in groups that no form has, are
// read as floats. Experts that are stacked stay so: X.experts.gate_proj.weight [experts, outputs, inputs].
// All that a reader will read is checked here. config, file: of quantization_config. Throws Error naming file
// and tensor.
void read_quantized(const nlohmann::json& config, const std::string& file, Tensors& tensors,
                    std::vector<std::string>& warnings);

}  // namespace lariat
