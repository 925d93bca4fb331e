#include "engine/contexts/join_contexts.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>

#include "models/positions/parse_position_method.h"
#include "tests/engine/saved_context_util.h"

namespace lariat::test {
namespace {

// Row of every head at one position; which: 0 keys, 1 values.
std::vector<std::byte> rows_at(const Session& session, const Sequence& sequence, size_t layer, int64_t place,
                               size_t which) {
  const KvLayer& of = session.pool().geometry().layers[layer];
  const KvLayer::Rows rows = of.rows().at(which);
  std::vector<std::byte> result;
  for (int64_t head = 0; head < of.n_kv_heads; ++head) {
    const auto* at = static_cast<const std::byte*>(sequence.cache().pages()[place / kKvPage]) + rows.offset +
                     static_cast<size_t>(kv_index(head, place, 0, 1)) * rows.bytes;
    result.insert(result.end(), at, at + rows.bytes);
  }
  return result;
}

double difference(const Session& session, const Sequence& a, const Sequence& b, size_t layer, size_t which,
                  int64_t first, int64_t last) {
  double largest = 0;
  for (int64_t place = first; place < last; ++place) {
    const auto x = rows_at(session, a, layer, place, which), y = rows_at(session, b, layer, place, which);
    const auto floats = [](const std::vector<std::byte>& bytes) {
      return std::span(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
    };
    const double here = max_abs_difference(floats(x), floats(y));
    if (!(here <= largest)) largest = here;
  }
  return largest;
}

class Joining : public FolderTest {
 protected:
  void open(const std::string& checkpoint) {
    const auto dir = checkpoint_dir(checkpoint);
    model_.emplace(load_model(dir, load_config(dir), backend_, DType::kF32));
  }
  std::filesystem::path part(Session& session, const std::string& name, std::span<const int32_t> tokens,
                             std::span<const int32_t> placed = {}, size_t unread = 0) {
    Sequence sequence = session.new_sequence();
    if (!placed.empty()) sequence.set_mrope_positions(placed);
    if (tokens.size() > unread) prefill(session, sequence, tokens.first(tokens.size() - unread));
    save_context(session, sequence, tokens, dir_ / name);
    return dir_ / name;
  }
  CpuBackend backend_{1};
  std::optional<Model> model_;
};

struct Join {
  const char* checkpoint;
  const char *first, *second,
      *session;  // scalings of the parts, and of the joined context
};

class JoinedLayer0 : public Joining, public testing::WithParamInterface<Join> {};

// Layer 0 reads only embeddings: keys and values are equal.
TEST_P(JoinedLayer0, EqualsTheWholeText) {
  const Join& join = GetParam();
  open(join.checkpoint);
  const auto tokens = some_tokens(570, model_->spec.vocab_size);
  const auto all = std::span(tokens);
  const auto options = [&](const std::string& scaling) {
    return scaled_session(*model_, scaling, scaling == "yarn" || scaling == "linear" ? 4 : 0);
  };
  Session first(*model_, backend_, options(join.first)), second(*model_, backend_, options(join.second)),
      session(*model_, backend_, options(join.session));
  const std::vector files = {part(first, "a", all.first(300)), part(second, "b", all.subspan(300, 70)),
                             part(second, "c", all.subspan(370))};
  SavedContext joined = join_contexts(session, files, {}, {});
  Sequence whole = session.new_sequence();
  prefill(session, whole, tokens);
  EXPECT_EQ(joined.tokens, tokens);
  EXPECT_EQ(joined.sequence.length(), 570);
  EXPECT_EQ(joined.sequence.cache().frequencies(), whole.cache().frequencies());
  for (size_t which = 0; which < session.pool().geometry().layers[0].rows().size(); ++which)
    EXPECT_LE(difference(session, joined.sequence, whole, 0, which, 0, 570), 1e-5) << which;
  EXPECT_GT(difference(session, joined.sequence, whole, 1, 0, 300, 570), 1e-3)
      << "keys of the next layer depend on the visible tokens";
}

// Scale steps; partial rotary; latent attention; local frequencies, windows; ALiBi.
INSTANTIATE_TEST_SUITE_P(Cases, JoinedLayer0,
                         testing::Values(Join{"llama_gqa", "none", "none", "none"},
                                         Join{"llama_gqa", "dynamic-yarn", "dynamic-yarn", "dynamic-yarn"},
                                         Join{"llama_gqa", "dynamic", "yarn", "dynamic-yarn"},
                                         Join{"llama_gqa_interleaved", "linear", "none", "yarn"},
                                         Join{"llama_partial", "dynamic", "none", "dynamic"},
                                         Join{"deepseek_v2", "yarn", "dynamic-yarn", "dynamic-yarn"},
                                         Join{"gemma3", "dynamic-yarn", "none", "yarn"},
                                         Join{"mistral_window", "none", "none", "dynamic"},
                                         Join{"qwen2_vl", "none", "dynamic", "dynamic"},
                                         Join{"bloom", "", "", ""}),
                         [](const auto& test) {
                           return test_name(fmt::format("{}_{}_{}_{}", test.param.checkpoint,
                                                        test.param.first, test.param.second,
                                                        test.param.session));
                         });

// The second image's positions follow the first part's largest position.
TEST_F(Joining, MovesPlacedTokensTogether) {
  open("qwen2_vl");
  Session session(*model_, backend_, scaled_session(*model_, "dynamic"));
  const auto tokens = some_tokens(100, model_->spec.vocab_size);
  const auto all = std::span(tokens);
  std::vector<int32_t> image,
      whole_image;  // an image of 6 x 6, four words
  for (int32_t i = 0; i < 36; ++i) image.insert(image.end(), {0, i / 6, i % 6});
  whole_image = image;
  for (int32_t i = 6; i < 20; ++i) whole_image.insert(whole_image.end(), 3, i);
  for (int32_t i = 0; i < 36; ++i) whole_image.insert(whole_image.end(), {20, 20 + i / 6, 20 + i % 6});
  const std::vector files = {part(session, "a", all.first(50), image),
                             part(session, "b", all.subspan(50), image)};
  SavedContext joined = join_contexts(session, files, {}, {});
  SavedContext anew = join_contexts(session, files, {.anew = true}, {});
  Sequence whole = session.new_sequence();
  whole.set_mrope_positions(whole_image);
  prefill(session, whole, tokens);
  EXPECT_LE(difference(session, joined.sequence, whole, 0, 0, 0, 100), 1e-5);
  EXPECT_EQ(joined.sequence.cache().frequencies(), whole.cache().frequencies());
  const auto tail = some_tokens(5, model_->spec.vocab_size, 3);
  EXPECT_EQ(decode_logits(session, anew.sequence, tail), decode_logits(session, whole, tail));
}

TEST_F(Joining, RecomputeAllIsAnOrdinaryPrefill) {
  open("llama_gqa");
  for (const char* scaling : {"none", "dynamic-yarn"}) {
    SessionOptions options = scaled_session(*model_, scaling);
    options.k_dtype = DType::kF16;
    Session session(*model_, backend_, options);
    const auto tokens = some_tokens(600, model_->spec.vocab_size),
               tail = some_tokens(5, model_->spec.vocab_size, 3);
    const std::vector files = {part(session, "a", std::span(tokens).first(260)),
                               part(session, "b", std::span(tokens).subspan(260))};
    SavedContext anew = join_contexts(session, files, {.anew = true}, {});
    Sequence whole = session.new_sequence();
    prefill(session, whole, tokens);
    for (const int64_t place : {0, 259, 260, 599})
      EXPECT_EQ(rows_at(session, anew.sequence, 1, place, 0), rows_at(session, whole, 1, place, 0)) << place;
    EXPECT_EQ(decode_logits(session, anew.sequence, tail), decode_logits(session, whole, tail)) << scaling;
  }
}

TEST_F(Joining, RecomputesTheStartOfEachLaterPart) {
  open("llama_gqa");
  Session session(*model_, backend_, scaled_session(*model_, "yarn", 4));
  const auto tokens = some_tokens(400, model_->spec.vocab_size),
             tail = some_tokens(5, model_->spec.vocab_size, 3);
  const auto all = std::span(tokens);
  const std::vector files = {part(session, "a", all.first(150)), part(session, "b", all.subspan(150, 150)),
                             part(session, "c", all.subspan(300))};
  const auto joined = [&](const JoinOptions& options) {
    return join_contexts(session, files, options, {}).sequence;
  };
  const Sequence anew = joined({.anew = true}), some = joined({.recompute = 5});
  EXPECT_LE(difference(session, some, anew, 1, 0, 0, 155), 1e-5) << "their preceding tokens are visible";
  EXPECT_GT(difference(session, some, anew, 1, 0, 155, 156), 1e-3) << "prefilled without them";
  const auto logits = [&](const JoinOptions& options) {
    Sequence sequence = joined(options);
    return decode_logits(session, sequence, tail);
  };
  const auto expected = logits({.anew = true});
  EXPECT_LE(max_abs_difference(logits({.recompute = 1000}), expected), kSumOrderTolerance);
  EXPECT_GT(max_abs_difference(logits({.recompute = 5}), expected), 100 * kSumOrderTolerance);
}

// A kept BOS counts towards N. A part's pending last token is decoded, except at the end.
TEST_F(Joining, DropsOrKeepsTheBosOfLaterParts) {
  open("llama_gqa");
  Session session(*model_, backend_, f32_session());
  std::vector<int32_t> a = {1, 10, 11, 12}, b = {1, 20, 21}, c = {30, 1, 31, 32};
  const std::vector files = {part(session, "none", std::vector<int32_t>{1}, {}, 1),
                             part(session, "a", a, {}, 1), part(session, "b", b),
                             part(session, "c", c, {}, 1)};
  const auto joined = std::span(files).subspan(1);
  const std::vector<int32_t> dropped = {1, 10, 11, 12, 20, 21, 30, 1, 31, 32};
  SavedContext context = join_contexts(session, joined, {}, {1});
  EXPECT_EQ(context.tokens, dropped);
  EXPECT_EQ(context.sequence.length(), 9);
  EXPECT_EQ(join_contexts(session, files, {}, {1}).tokens, dropped) << "the first part is only a BOS";
  const std::vector<int32_t> kept = {1, 10, 11, 12, 1, 20, 21, 30, 1, 31, 32};
  const SavedContext again = join_contexts(session, joined, {.recompute = 1, .keep_bos = true}, {1});
  EXPECT_EQ(again.tokens, kept);
  const SavedContext anew = join_contexts(session, joined, {.anew = true, .keep_bos = true}, {1});
  EXPECT_EQ(anew.tokens, kept);
  EXPECT_EQ(anew.sequence.length(), 10);
  EXPECT_LE(difference(session, again.sequence, anew.sequence, 1, 0, 0, 5), 1e-5) << "with the BOS of b";
  EXPECT_GT(difference(session, again.sequence, anew.sequence, 1, 0, 5, 6), 1e-3);
  // Later parts drop prefix tokens that they repeat.
  const std::vector<int32_t> several = {1, 10, 11, 12, 21, 30, 1, 31, 32};
  EXPECT_EQ(join_contexts(session, joined, {}, {1, 20}).tokens, several);
}

// A joined context can be saved; its values, scales included, are copied from the parts.
TEST_F(Joining, GivesAnOrdinaryContext) {
  open("llama_gqa");
  SessionOptions options = scaled_session(*model_, "dynamic-yarn");
  options.k_dtype = DType::kF16;
  options.v_dtype = DType::kQ8;
  Session session(*model_, backend_, options);
  const auto tokens = some_tokens(500, model_->spec.vocab_size),
             tail = some_tokens(40, model_->spec.vocab_size, 3);
  const std::vector files = {part(session, "a", std::span(tokens).first(200)),
                             part(session, "b", std::span(tokens).subspan(200))};
  SavedContext alone = join_contexts(session, std::span(files).first(1), {}, {}),
               loaded = load_context(session, files[0]);
  EXPECT_EQ(decode_logits(session, alone.sequence, tail), decode_logits(session, loaded.sequence, tail));
  SavedContext joined = join_contexts(session, files, {}, {}), second = load_context(session, files[1]);
  for (const int64_t place : {0, 55, 56, 299}) {
    for (const size_t which : {size_t{1}, size_t{2}})
      EXPECT_EQ(rows_at(session, joined.sequence, 1, 200 + place, which),
                rows_at(session, second.sequence, 1, place, which))
          << place;
  }
  save_context(session, joined.sequence, joined.tokens, dir_ / "joined");
  SavedContext again = load_context(session, dir_ / "joined");
  EXPECT_EQ(decode_logits(session, again.sequence, tail), decode_logits(session, joined.sequence, tail));
}

TEST_F(Joining, RefusalsLeaveNoFile) {
  open("llama_mha");
  const auto words = some_tokens(20, 50);
  {
    Session stranger(*model_, backend_, f32_session());
    part(stranger, "other", words);
  }
  const auto other = dir_ / "other";
  open("llama_gqa");
  SessionOptions options = f32_session();
  Session session(*model_, backend_, options);
  const auto own = part(session, "own", words), damaged = part(session, "damaged", words);
  put("damaged", slurp(damaged).substr(0, 5000));
  options.max_ctx = 30;
  Session narrow(*model_, backend_, options);
  options = f32_session();
  options.stale_cache = true;
  Session stale(*model_, backend_, options);
  options = f32_session();
  options.v_dtype = DType::kF16;
  Session half(*model_, backend_, options);
  options = f32_session();
  options.positions = parse_position_method("sinks", 64, 0);
  Session method(*model_, backend_, options);
  const struct {
    Session& session;
    std::filesystem::path file;
    std::string words;
  } cases[] = {{session, other, "other"},
               {session, damaged, "damaged"},
               {session, dir_ / "nowhere", "nowhere"},
               {half, own, "own | f32 | f16"},
               {narrow, own, "40 | 30"},
               {stale, own, "`rope_cache` stale"},
               {method, own, "`position_method` sinks"}};
  for (const auto& refused : cases) {
    const std::vector files = {own, refused.file};
    EXPECT_TRUE(names(error_of([&] { join_contexts(refused.session, files, {}, {}); }), refused.words));
    EXPECT_EQ(refused.session.pool().pages(), 0) << refused.words;
  }
  EXPECT_EQ(join_contexts(stale, std::vector{own, own}, {.anew = true}, {}).sequence.length(), 40);
}

TEST(ParseJoin, AcceptsTheKnownModes) {
  const JoinOptions some = parse_join("recompute=16/bos=keep");
  EXPECT_TRUE(!some.anew && some.recompute == 16 && some.keep_bos);
  EXPECT_TRUE(parse_join("anew/bos=drop").anew);
  EXPECT_EQ(parse_join("rotate").recompute, 0);
  for (const char* wrong :
       {"", "rotate=1", "recompute", "recompute=", "recompute=0", "recompute=-1", "recompute=9x",
        "recompute=99999999999999999999", "anew/", "anew/bos=no", "rotate/bos=keep/bos=drop"})
    EXPECT_THROW(parse_join(wrong), UsageError) << wrong;
}

}  // namespace
}  // namespace lariat::test
