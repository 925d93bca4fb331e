#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/contexts/fingerprint.h"
#include "engine/contexts/saved_context_file.h"
#include "models/io/mapped_file.h"
#include "models/load/open_files.h"
#include "models/positions/parse_position_method.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/engine/saved_context_util.h"
#include "tests/models/gguf_builder.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

class ContextFile : public OnLlama {
 protected:
  ContextFile() {
    options_ = f32_session();
    options_.k_dtype = DType::kF16;
    Session session(model_, backend_, options_);
    save(session, file_);
    bytes_ = slurp(file_);
    std::memcpy(&header_bytes_, bytes_.data(), sizeof header_bytes_);
  }

  std::ptrdiff_t files() const { return std::distance(fs::directory_iterator(dir_), {}); }
  void save(Session& session, const fs::path& file) {
    Sequence sequence = session.new_sequence();
    prefill(session, sequence, tokens_);
    save_context(session, sequence, tokens_, file);
  }

  // Returns "" if the file loads.
  std::string refusal(const SessionOptions& options, const Model& model, const fs::path& file) {
    Session session(model, backend_, options);
    const std::string what = error_of([&] { load_context(session, file); });
    EXPECT_TRUE(what.empty() || what.starts_with(file.string())) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos);
    EXPECT_EQ(session.pool().pages(), 0);
    return what;
  }
  std::string refusal(const fs::path& file) { return refusal(options_, model_, file); }
  std::string refusal_of_bytes(const std::string& bytes) {
    put("changed", bytes);
    return refusal(dir_ / "changed");
  }

  ContextExpectations expectations(const Session& session) const {
    std::map<std::string, std::string> said;
    parse_safetensors(std::as_bytes(std::span(bytes_)), file_, &said);
    return {{said["model"], said["tokenizer"], said["weights"], said["keys"], said["values"], said["rope"]},
            session.pool().geometry(),
            8,
            model_.spec.vocab_size};
  }

  const std::vector<int32_t> tokens_ = some_tokens(300, model_.spec.vocab_size);
  const fs::path file_ = dir_ / "context";
  SessionOptions options_;
  std::string bytes_;
  uint64_t header_bytes_ = 0;
};

TEST_F(ContextFile, IsAnOrdinarySafetensorsFile) {
  EXPECT_EQ((8 + header_bytes_) % 4096, 0U);
  const Tensors file = open_safetensors_file(file_);
  EXPECT_EQ(file.all().size(), 2U * 2 * 2 + 5);
  for (const char* page : {"page.0.", "page.1."}) {
    for (const char* layer : {"layer.0.", "layer.1."}) {
      EXPECT_EQ(file.check(std::string(page) + layer + "keys", {2, kKvPage, 16}).dtype, "F16");
      EXPECT_EQ(file.check(std::string(page) + layer + "values", {2, kKvPage, 16}).dtype, "F32");
    }
  }
  EXPECT_EQ(file.check("inv_freq", {8}).dtype, "F64");
  EXPECT_EQ(file.check("tokens", {300}).dtype, "I32");
  const auto values = float_tensor(file, "page.1.layer.1.values");
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t position = 300; position < 2 * kKvPage; ++position) {
      for (int64_t d = 0; d < 16; ++d)
        ASSERT_EQ(values[static_cast<size_t>(kv_index(head, position, d, 16))], 0.0F);
    }
    EXPECT_NE(values[static_cast<size_t>(kv_index(head, 299, 0, 16))], 0.0F);
  }
}

TEST_F(ContextFile, IsReproducible) {
  Session session(model_, backend_, options_);
  save(session, dir_ / "again");
  EXPECT_EQ(slurp(dir_ / "again"), bytes_);
}

// Cuts the header length, the header, between and inside tensors, before the last byte.
TEST_F(ContextFile, CutShortIsRefused) {
  const size_t data = 8 + header_bytes_;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{100}, data - 1,
                            data, data + 1, data + 16384, data + 16385, (data + bytes_.size()) / 2,
                            bytes_.size() - 1201, bytes_.size() - 4, bytes_.size() - 1}) {
    EXPECT_NE(refusal_of_bytes(bytes_.substr(0, size)), "") << size;
  }
  EXPECT_NE(refusal_of_bytes(bytes_ + "x"), "");
  EXPECT_EQ(refusal_of_bytes(bytes_), "");
}

// One bit per byte: the header, parts of the data, the short tensors after the pages.
TEST_F(ContextFile, ChangedAnywhereIsRefused) {
  const Session session(model_, backend_, options_);
  const ContextExpectations expected = expectations(session);
  const size_t data = 8 + header_bytes_;
  std::vector<size_t> places;
  for (size_t at = 0; at < data; ++at) places.push_back(at);
  for (size_t at = data; at < bytes_.size(); at += 1021) places.push_back(at);
  for (size_t at = bytes_.size() - 1300; at < bytes_.size(); ++at) places.push_back(at);
  std::string changed = bytes_;
  const auto parse = [&] { parse_saved_context(std::as_bytes(std::span(changed)), file_, expected); };
  EXPECT_NO_THROW(parse());
  for (const size_t at : places) {
    changed[at] = static_cast<char>(bytes_[at] ^ (1 << (at % 8)));
    EXPECT_THROW(parse(), Error) << "byte " << at;
    changed[at] = bytes_[at];
  }
}

// A shape with a 0 may claim any size without data: nothing is allocated.
TEST_F(ContextFile, HugeEmptyListsAreRefused) {
  const auto header = nlohmann::json::parse(bytes_.substr(8, header_bytes_));
  const auto forged = [&](int64_t length, const nlohmann::json& tokens, const nlohmann::json& positions) {
    nlohmann::json changed = {{"__metadata__", header["__metadata__"]}};
    changed["__metadata__"]["length"] = std::to_string(length);
    for (const auto& [name, shape] : {std::pair("tokens", tokens), std::pair("positions", positions)})
      changed[name] = {{"dtype", "I32"}, {"shape", shape}, {"data_offsets", {0, 0}}};
    const std::string text = changed.dump();
    const uint64_t size = text.size();
    return refusal_of_bytes(std::string(reinterpret_cast<const char*>(&size), sizeof size) + text);
  };
  const int64_t many = int64_t{1} << 36;
  EXPECT_TRUE(names(forged(many, {many, 0}, {0, 3}), "tokens"));
  EXPECT_TRUE(names(forged(0, {0}, {many, 0}), "positions"));
  EXPECT_TRUE(names(forged(0, {0}, {0}), "positions"));
  EXPECT_TRUE(names(forged(0, nlohmann::json::array(), {0, 3}), "tokens"));
}

// The checksums are right.
TEST_F(ContextFile, WithPositionsOfMropeForAModelWithoutIsRefused) {
  const Session session(model_, backend_, options_);
  ContextRecord record = parse_saved_context(std::as_bytes(std::span(bytes_)), file_, expectations(session));
  const KvGeometry& geometry = session.pool().geometry();
  const auto write = [&](const fs::path& file) {
    SafetensorsWriter writer(file, context_tensors(geometry, record, file), {context_metadata(record), 4096});
    std::vector<uint64_t> checksums;
    for (size_t at = 0; at < record.pages.size(); at += geometry.page_bytes)
      checksums.push_back(checksum(record.pages.subspan(at, geometry.page_bytes)));
    checksums.push_back(context_checksum(record));
    writer.append(record.pages);
    writer.append(std::as_bytes(std::span(record.frequencies.inv_freq)));
    writer.append(std::as_bytes(std::span(&record.frequencies.attention_factor, 1)));
    writer.append(std::as_bytes(std::span(checksums)));
    writer.append(std::as_bytes(std::span(record.tokens)));
    writer.append(std::as_bytes(std::span(record.placed)));
    writer.finish(false);
  };
  write(dir_ / "same");
  EXPECT_EQ(slurp(dir_ / "same"), bytes_);
  for (int32_t i = 0; i < 310; ++i) record.placed.insert(record.placed.end(), {i, i, i + 1});
  write(dir_ / "placed");
  EXPECT_TRUE(names(refusal(dir_ / "placed"), "M-RoPE"));
}

TEST_F(ContextFile, OtherFilesAreRefused) {
  for (const fs::path& other :
       {model_dir_ / "model.safetensors", model_dir_ / "config.json", dir_ / "none", dir_})
    EXPECT_NE(refusal(other), "") << other;
  std::string other = bytes_;
  other.replace(other.find("lariat context 1"), 16, "lariat context 9");
  EXPECT_NE(refusal_of_bytes(other), "");
}

TEST_F(ContextFile, OtherModelsAndTokenizersAreRefused) {
  const Model other = open_f32(checkpoint_dir("llama_mha"), backend_);
  EXPECT_NE(refusal(options_, other, file_), "");
  const fs::path copy = dir_ / "model";
  fs::copy(model_dir_, copy);
  std::string weights = slurp(copy / "model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  put("model/model.safetensors", weights);
  const Model tuned = open_f32(copy, backend_);
  EXPECT_NE(refusal(options_, tuned, file_), "");
  fs::remove_all(copy);
  fs::copy(model_dir_, copy);
  put("model/tokenizer.json", "{}");
  const Model same = open_f32(copy, backend_);
  EXPECT_NE(refusal(options_, same, file_), "");
  fs::remove(copy / "tokenizer.json");
  EXPECT_EQ(refusal(options_, same, file_), "");
}

// Vocabularies that differ in one part, in a GGUF and in a folder; most have one text.
TEST_F(ContextFile, EveryPartOfATokenizerCounts) {
  const auto of_gguf = [&](float score, int32_t type, const char* model, const char* pre) {
    GgufBuilder gguf = small_gguf("llama");
    gguf.set("tokenizer.ggml.model", model).set("tokenizer.ggml.pre", pre);
    gguf.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
    gguf.set("tokenizer.ggml.scores", std::vector{0.0F, score});
    gguf.set("tokenizer.ggml.token_type", std::vector<int32_t>{1, type});
    put("v.gguf", gguf.bytes());
    return tokenizer_fingerprint(open_text_files(dir_ / "v.gguf").texts);
  };
  const auto of_folder = [&](const char* vocabulary, const std::string& settings) {
    const TempFolder folder;
    folder.put(vocabulary, "dmE= 0");
    folder.put("tokenizer_config.json", settings);
    return tokenizer_fingerprint(ModelTexts(folder.path));
  };
  const std::vector<std::string> all = {
      of_gguf(-1, 1, "llama", "default"),
      of_gguf(-2, 1, "llama", "default"),
      of_gguf(-1, 4, "llama", "default"),
      of_gguf(-1, 1, "gpt2", "default"),
      of_gguf(-1, 1, "gpt2", "llama-bpe"),
      of_folder("tokenizer.model", R"({"tokenizer_class": "LlamaTokenizer"})"),
      of_folder("tokenizer.model", R"({"tokenizer_class": "LlamaTokenizer", "legacy": false})"),
      of_folder("tokenizer.model", R"({"tokenizer_class": "GemmaTokenizer"})"),
      of_folder("tokenizer.model", R"({"added_tokens_decoder": {"7": {"content": "x"}}})"),
      of_folder("tokenizer.json", "{}"),
      of_folder("qwen.tiktoken", "{}"),
      of_folder("vocab.txt", "{}")};
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());
  EXPECT_EQ(all.back(), "none");
  EXPECT_EQ(all[0].substr(0, 16), all[1].substr(0, 16));
  EXPECT_EQ(all[5].substr(0, 16), all[7].substr(0, 16));
}

// Earlier versions saved the first of two fingerprints.
TEST_F(ContextFile, OfAnEarlierVersionLoads) {
  const Session session(model_, backend_, options_);
  ContextExpectations expected = expectations(session);
  const auto refusal = [&](const char* tokenizer) {
    expected.identity.tokenizer = tokenizer;
    return error_of([&] { parse_saved_context(std::as_bytes(std::span(bytes_)), file_, expected); });
  };
  EXPECT_EQ(refusal("none 0123456789abcdef"), "");
  EXPECT_TRUE(names(refusal("non 0123456789abcdef"), "context | tokenizer"));
}

// A config may change only its scaling.
TEST_F(ContextFile, LoadsUnderAConfigWithAnotherScaling) {
  const fs::path copy = dir_ / "model";
  fs::copy(model_dir_, copy);
  auto config = nlohmann::json::parse(slurp(copy / "config.json"));
  config["max_position_embeddings"] = 128;
  config["rope_parameters"] = {{"rope_type", "dynamic"}, {"factor", 2.0}, {"rope_theta", 10000.0}};
  put("model/config.json", config.dump());
  EXPECT_EQ(refusal(options_, open_f32(copy, backend_), file_), "");
  config["rms_norm_eps"] = 1e-5;
  put("model/config.json", config.dump());
  EXPECT_NE(refusal(options_, open_f32(copy, backend_), file_), "");
}

TEST_F(ContextFile, MethodsWithoutAStretchAreRefused) {
  options_.positions = parse_position_method("dca/chunk=48/window=16", 64, 0);
  Session session(model_, backend_, options_);
  save(session, dir_ / "method");
  std::string bytes = slurp(dir_ / "method");
  EXPECT_EQ(refusal_of_bytes(bytes), "");
  const size_t at = bytes.find("\"stretch\":\"1\"") + 11;
  for (const char wrong : {'0', 'x', '.'}) {
    bytes.at(at) = wrong;
    EXPECT_TRUE(names(refusal_of_bytes(bytes), "stretch | " + std::string(1, wrong))) << wrong;
  }
}

TEST_F(ContextFile, OtherDtypesAreRefused) {
  EXPECT_TRUE(names(refusal(f32_session(), model_, file_), "f16 | f32"));
  const Model q8 = load_model(model_dir_, load_config(model_dir_), backend_, DType::kQ8);
  EXPECT_TRUE(names(refusal(options_, q8, file_), "f32 | q8"));
}

TEST_F(ContextFile, LongerThanTheContextOrRotatedOtherwiseIsRefused) {
  SessionOptions shorter = options_;
  shorter.max_ctx = 299;
  EXPECT_TRUE(names(refusal(shorter, model_, file_), "300 | 299"));
  shorter.max_ctx = 300;
  EXPECT_EQ(refusal(shorter, model_, file_), "");
  SessionOptions interleaved = options_;
  interleaved.rope = model_.spec.rope();
  interleaved.rope->interleaved = true;
  EXPECT_TRUE(names(refusal(interleaved, model_, file_), "8 | interleaved"));
}

TEST_F(ContextFile, OfRandomWeightsIsNotSaved) {
  const Model random = random_model(load_config(model_dir_), backend_, DType::kF32, 1);
  Session session(random, backend_, f32_session());
  EXPECT_THROW(save(session, dir_ / "random"), Error);
  EXPECT_FALSE(fs::exists(dir_ / "random"));
}

TEST_F(ContextFile, NeedsTheTokensOfItsCache) {
  Session session(model_, backend_, options_);
  Sequence sequence = session.new_sequence();
  prefill(session, sequence, tokens_);
  EXPECT_THROW(save_context(session, sequence, std::span(tokens_).first(299), dir_ / "fewer"), Error);
  sequence.truncate(298);
  EXPECT_THROW(save_context(session, sequence, tokens_, dir_ / "more"), Error);
  EXPECT_EQ(files(), 1);
}

// The file size limit is in the header, in a page, at the end.
TEST_F(ContextFile, AFullDiskLeavesTheOldFile) {
  std::signal(SIGXFSZ, SIG_IGN);
  Session session(model_, backend_, f32_session());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  for (const size_t room : {size_t{100}, size_t{20000}, bytes_.size()}) {
    const rlimit small{room, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    EXPECT_THROW(save(session, file_), Error) << room;
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(slurp(file_), bytes_) << room;
    EXPECT_EQ(files(), 1) << room;
  }
  EXPECT_THROW(save(session, "/dev/full"), Error);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_THROW(save(session, dir_ / "no folder" / "context"), Error);
  EXPECT_THROW(save(session, dir_), Error);
}

// Kills the process while a save copies its second page.
class KilledWhileSaving final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void copy_out(void* dst, const void* src, size_t bytes) override {
    if (++copied_ == 2) std::raise(SIGKILL);
    inner_.copy_out(dst, src, bytes);
  }

 private:
  int copied_ = 0;
};

TEST_F(ContextFile, KilledWhileSavingLeavesTheOldFile) {
  KilledWhileSaving killer(backend_);
  Session session(model_, killer, options_);
  Sequence sequence = session.new_sequence();
  forward(session, {&sequence, tokens_, std::ssize(tokens_)});
  const pid_t child = fork();
  if (child == 0) {
    save_context(session, sequence, tokens_, file_);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(files(), 2) << "the partial file remains next to the old file";
  EXPECT_EQ(slurp(file_), bytes_);
  EXPECT_EQ(refusal(file_), "");
  Session again(model_, backend_, options_);
  save(again, file_);
  EXPECT_EQ(slurp(file_), bytes_);
}

// Truncates the file while it backs a cache.
TEST_F(ContextFile, CutShortWhileInUseEndsTheProgramWithOneLine) {
  const fs::path said = dir_ / "said";
  const pid_t child = fork();
  if (child == 0) {
    const int fd = ::open(said.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ::dup2(fd, STDERR_FILENO);
    install_mapping_fault_handler([](const std::string& error) { return "said: " + error + "\n"; });
    Session session(model_, backend_, options_);
    SavedContext context = load_context(session, file_);
    fs::resize_file(file_, 4096);
    decode(session, context.sequence, 1);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  const std::string line = slurp(said);
  EXPECT_EQ(line.rfind("said: " + file_.string() + ": ", 0), 0U) << line;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
}

TEST(Checksum, CoversEveryBit) {
  std::string text(200, 'a');
  const auto sum = [](std::string_view of) { return checksum(std::as_bytes(std::span(of))); };
  std::vector<uint64_t> sums = {sum(text), sum(text + 'a'), sum(text.substr(1)), sum(text + '\0'), sum("")};
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    sums.push_back(sum(changed));
  }
  std::sort(sums.begin(), sums.end());
  EXPECT_EQ(std::adjacent_find(sums.begin(), sums.end()), sums.end());
}

}  // namespace
}  // namespace lariat::test
