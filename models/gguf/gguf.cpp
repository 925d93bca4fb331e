#include "models/gguf/gguf.h"

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "kernels/error.h"
#include "models/gguf/gguf_model.h"
#include "models/text/tokenizer_settings.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

struct Opened {
  GgufFile file;
  std::shared_ptr<const Tensors> tensors;
};

// Lists the other files of a split model, named as by llama.cpp.
std::vector<fs::path> other_parts(const GgufFile& first) {
  constexpr int64_t kMostParts = 1000;
  const int64_t count = first.integer("split.count").value_or(1), no = first.integer("split.no").value_or(0);
  if (count < 1 || count > kMostParts)
    first.fail("split.count",
               fmt::format("{} is not a number of files; the file is damaged, download it again", count));
  std::vector<fs::path> parts;
  if (count == 1) return parts;
  const std::string name = first.path.filename().string(),
                    end = fmt::format("-{:05}-of-{:05}.gguf", no + 1, count);
  if (!name.ends_with(end))
    first.fail("split.no",
               fmt::format("the file is one of {}, but its name does not end with {}; restore the name",
                           count, end));
  const std::string prefix = name.substr(0, name.size() - end.size());
  for (int64_t i = 0; i < count; ++i) {
    const fs::path part =
        first.path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", prefix, i + 1, count);
    if (i == 0 && no != 0)
      first.fail("split.no",
                 fmt::format("this is file {} of {}; give the first, {}", no + 1, count, part.string()));
    std::error_code ec;
    if (!fs::is_regular_file(part, ec))
      throw Error(fmt::format("{}: is missing; add all {} files of the model", part.string(), count));
    if (i > 0) parts.push_back(part);
  }
  return parts;
}

GgufFile parse(const MappedFile& mapped, const fs::path& path) {
  return parse_gguf({mapped.data(), mapped.size()}, path);
}

std::vector<StoredTensor> named(const GgufFile& first, GgufFile part) {
  part.metadata = first.metadata;
  return gguf_tensors(part);
}

std::shared_ptr<Opened> open(const fs::path& path) {
  auto opened = std::make_shared<Opened>();
  const auto tensors = std::make_shared<Tensors>(path);
  GgufFile& file = opened->file;
  MappedFile mapped(path);
  file = parse(mapped, path);
  const std::string_view type = file.string("general.type").value_or("model");
  if (type != "model")
    file.fail("general.type", type == "adapter"
                                  ? "a LoRA adapter; merge it into its model first (llama-export-lora)"
                                  : fmt::format("'{:.60}' is not a model; give the model's file", type));
  const std::vector<fs::path> parts = other_parts(file);
  tensors->add(std::move(mapped), named(file, file));
  int64_t no = 0;
  for (const fs::path& name : parts) {
    MappedFile next(name);
    GgufFile part = parse(next, name);
    if (part.integer("split.no") != ++no)
      part.fail("split.no", fmt::format("expected {}; use the files of one model", no));
    file.tensors.insert(file.tensors.end(), part.tensors.begin(), part.tensors.end());
    tensors->add(std::move(next), named(file, std::move(part)));
  }
  if (const auto all = file.integer("split.tensors.count"); all && *all != std::ssize(file.tensors)) {
    file.fail("split.tensors.count",
              fmt::format("is {}, but the files have {} tensors; download the files again", *all,
                          file.tensors.size()));
  }
  opened->tensors = tensors;
  return opened;
}

}  // namespace

ModelFiles open_gguf(const fs::path& path) {
  const std::shared_ptr<const Opened> opened = open(path);
  ModelTexts::Makers makers = {{"config.json", [opened] { return gguf_config(opened->file); }}};
  ModelTexts::Vocabulary vocabulary;
  if (const auto json = opened->file.string("tokenizer.huggingface.json")) {
    makers["tokenizer.json"] = [opened, json] { return std::string(*json); };
  } else {
    vocabulary = [opened](tok::Pipeline& pipeline) { gguf_vocabulary(opened->file, pipeline); };
    makers[std::string(tok::kGgufVocabulary)] = [opened] { return gguf_vocabulary_text(opened->file); };
  }
  makers[std::string(tok::kGgufTokenizerKeys)] = [opened] { return gguf_tokenizer_keys(opened->file); };
  if (const nlohmann::json sampling = gguf_generation_config(opened->file); !sampling.empty())
    makers["generation_config.json"] = [sampling] { return nlohmann::json(sampling); };
  makers["tokenizer_config.json"] = [opened] { return gguf_tokenizer_config(opened->file); };
  ModelFiles files;
  files.texts = ModelTexts(path, std::move(makers), std::move(vocabulary), gguf_wording(opened->file));
  files.tensors = opened->tensors;
  return files;
}

}  // namespace lariat
