#include <atomic>
#include <random>

#include "tests/tools/served.h"

namespace lariat::test {
namespace {

constexpr const char* kText = "Once upon a time";

std::string generated(const std::string& arguments) {
  const Outcome outcome = run_lariat("generate -m " + kDemo.string() + " --quiet " + arguments);
  return outcome.out.substr(0, outcome.out.size() - 1);
}

std::vector<Json> chunks_of(const std::string& stream) {
  std::vector<Json> chunks;
  for (size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos;) {
    at += 6;
    chunks.push_back(Json::parse(stream.substr(at, stream.find("\n\n", at) - at)));
  }
  return chunks;
}

Json greedy(const Json& more = {}) {
  Json body = {{"prompt", kText}, {"max_tokens", 40}, {"temperature", 0}};
  body.update(more.is_null() ? Json::object() : more);
  return body;
}

TEST(Serve, CompletesAsGenerateDoes) {
  Served served;
  const std::string text = generated(fmt::format("-p '{}' -n 40", kText));
  const Json whole = served.post("/v1/completions", greedy()).json();
  EXPECT_EQ(whole["choices"][0]["text"], text);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 40);
  const Reply streamed = served.post("/v1/completions", greedy({{"stream", true}}));
  std::string pieces;
  for (const Json& chunk : chunks_of(streamed.body)) pieces += chunk["choices"][0]["text"];
  EXPECT_EQ(pieces, text);
  EXPECT_TRUE(streamed.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(served.stop(SIGTERM), 0);
}

TEST(Serve, TextsOfABatchAreAsTheyAreAlone) {
  const Served served;
  std::vector<Json> bodies = {greedy(), greedy({{"rope_scaling", "yarn/factor=4"}}),
                              greedy({{"position_method", "sinks/sinks=4/window=16"}}),
                              greedy({{"prompt", "The cat"}})};
  std::vector<std::string> alone, together(bodies.size());
  for (const Json& body : bodies)
    alone.push_back(served.post("/v1/completions", body).json()["choices"][0]["text"]);
  EXPECT_EQ(alone[1], generated(fmt::format("-p '{}' -n 40 --rope-scaling yarn --rope-factor 4", kText)));
  std::vector<std::thread> clients;
  for (size_t i = 0; i < bodies.size(); ++i)
    clients.emplace_back(
        [&, i] { together[i] = served.post("/v1/completions", bodies[i]).json()["choices"][0]["text"]; });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(together, alone);
}

// As lm-eval scores: prompt + 1 entries, of which it reads all but the last.
TEST(Serve, EchoesLogLikelihoods) {
  const Served served("-m " + kDemo.string() + " --dtype f32 --kv-dtype f32");
  const TempFolder folder;
  const Json line = {{"prompt", kText}, {"continuation", " there was a dog"}};
  folder.put("lines", line.dump() + "\n");
  const Json scored = json_of(run_lariat("score -m " + kDemo.string() + " --dtype f32 --kv-dtype f32 -f " +
                                         (folder.path / "lines").string()));
  const Json ids =
      served.post("/tokenize", {{"prompt", std::string(kText) + " there was a dog"}}).json()["tokens"];
  const Json body = {
      {"model", "any"},
      {"prompt", Json::array({ids, served.post("/tokenize", {{"prompt", "The"}}).json()["tokens"]})},
      {"max_tokens", 1},
      {"temperature", 0},
      {"logprobs", 1},
      {"echo", true},
      {"seed", 1234}};
  const Json answer = served.post("/v1/completions", body).json();
  const Json& logprobs = answer["choices"][0]["logprobs"];
  const size_t n = logprobs["token_logprobs"].size(), from = n - 1 - scored["logprobs"].size();
  EXPECT_EQ(n, ids.size() + 1);
  EXPECT_EQ(answer["choices"].size(), 2U);
  EXPECT_EQ(answer["choices"][0]["text"].get<std::string>().find(kText), 0U);
  EXPECT_EQ(logprobs["text_offset"].size(), n);
  for (size_t i = 1; i + 1 < n; ++i) {  // offsets begin the tokens' text
    std::string token = logprobs["tokens"][i];
    if (i == 1) token.erase(0, 1);  // SentencePiece's space
    EXPECT_TRUE(
        answer["choices"][0]["text"].get<std::string>().substr(logprobs["text_offset"][i]).starts_with(token))
        << i;
  }
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null() && logprobs["top_logprobs"][0].is_null());
  for (size_t i = 0; i < scored["logprobs"].size(); ++i)
    EXPECT_NEAR(logprobs["token_logprobs"][from + i].get<double>(), scored["logprobs"][i].get<double>(), 1e-4)
        << i;
}

TEST(Serve, RefusesWithTheReason) {
  const Served served("-m " + kDemo.string() + " --ctx 64");
  const auto status = [&](const Json& body, const std::string& words) {
    const Reply reply = served.post("/v1/completions", body);
    EXPECT_TRUE(names(reply.body, words)) << reply.body;
    return reply.status;
  };
  EXPECT_EQ(status(greedy({{"logit_bias", {{"1", 2}}}}), "logit_bias"), 400);
  EXPECT_EQ(status(greedy({{"tempreature", 2}}), "tempreature"), 400);
  EXPECT_EQ(status(greedy({{"prompt", nullptr}}), "prompt"), 400);
  for (const char* scaling : {"yarn/factor=x", "nothing", "yarn", "dca"})
    EXPECT_EQ(status(greedy({{"rope_scaling", scaling}}), ""), 400) << scaling;
  EXPECT_EQ(status(greedy({{"prompt", std::vector<int>(65, 5)}}), "64 | 65 | context_length_exceeded"), 400);
  EXPECT_EQ(status(greedy({{"prompt", std::vector<int>{999999}}}), "999999"), 400);
  EXPECT_EQ(served.post("/detokenize", {{"tokens", {5, 999999}}}).status, 400);
  EXPECT_EQ(served.get("/v1/nothing").status, 404);
  EXPECT_EQ(served.get("/health").status, 200);
  EXPECT_EQ(served.raw("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n").status, 403);
  EXPECT_EQ(served.raw("GET / HTTP/1.1\r\n\r\n").status, 400);
  EXPECT_EQ(served.raw("rubbish\r\n\r\n").status, 400);
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";
  EXPECT_EQ(served.raw(head + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}").status, 415);
  EXPECT_EQ(
      served.raw(head + "Content-Type: application/json\r\nTransfer-Encoding: gzip, chunked\r\n\r\n").status,
      400);
  EXPECT_EQ(served.raw(head + "X: " + std::string(20000, 'x') + "\r\n\r\n").status, 431);
  EXPECT_EQ(served.raw(head + "Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n").status,
            413);
}

TEST(Serve, NeedsItsKey) {
  const TempFolder folder;
  folder.put("key", "secret\n");
  const Served served("-m " + kDemo.string() + " --api-key-file " + (folder.path / "key").string());
  const Json body = greedy({{"max_tokens", 1}});
  EXPECT_EQ(served.post("/v1/completions", body).status, 401);
  for (const auto& [header, status] :
       {std::pair("Authorization: Bearer secret\r\n", 200), std::pair("Authorization: Bearer secre\r\n", 401),
        std::pair("Authorization: Bearer secret2\r\n", 401), std::pair("api-key: secret\r\n", 200)})
    EXPECT_EQ(served.raw(Served::request("/v1/completions", body, header)).status, status) << header;
  EXPECT_EQ(served.get("/health").status, 200);
}

TEST(Serve, AHangUpEndsItsText) {
  Served served;
  const int fd = served.connect();
  const std::string text =
      Served::request("/v1/completions", greedy({{"max_tokens", 100000}, {"ignore_eos", true}}));
  EXPECT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
  EXPECT_TRUE(served.waits_for("num_requests_running", 1));
  ::close(fd);
  EXPECT_TRUE(served.waits_for("num_requests_running", 0));
  EXPECT_LT(served.metric("generation_tokens_total"), 100000);
  // A stream that runs is ended, and its client told.
  std::thread client([&] {
    const Reply reply = served.post(
        "/v1/completions", greedy({{"max_tokens", 1000000}, {"ignore_eos", true}, {"stream", true}}));
    EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n")) << reply.body.substr(reply.body.size() - 100);
  });
  EXPECT_TRUE(served.waits_for("num_requests_running", 1));
  EXPECT_EQ(served.stop(SIGTERM), 0);
  client.join();
}

// The request that finds the queue full is refused whole, and streams are no exception.
TEST(Serve, AFullQueueRefuses) {
  Served served("-m " + kDemo.string() + " --parallel 1");
  const auto request = [](bool stream) {
    return Served::request(
        "/v1/completions",
        greedy({{"n", 128}, {"max_tokens", 100000}, {"ignore_eos", true}, {"stream", stream}}));
  };
  std::vector<int> clients;
  for (const bool stream : {true, false}) {
    clients.push_back(served.connect());
    const std::string text = request(stream);
    EXPECT_EQ(::send(clients.back(), text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
  }
  EXPECT_TRUE(served.waits_for("num_requests_waiting", 255));
  for (const bool stream : {true, false}) {
    const Reply reply = served.raw(request(stream));
    EXPECT_EQ(reply.status, 429);
    EXPECT_TRUE(names(reply.head, "Retry-After")) << reply.head;
    EXPECT_TRUE(reply.json()["error"]["message"].is_string());
  }
  for (const int client : clients) ::close(client);
  EXPECT_TRUE(served.waits_for("num_requests_running", 0));
}

// 32 clients; one request in ten hangs up at some point or is rubbish. No answer is lost or another's.
TEST(Serve, ManyClientsGetTheirOwnAnswers) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kRequests = 4;
#else
  constexpr int kRequests = 32;
#endif
  Served served("-m " + kDemo.string() + " --cache-memory 0");
  const std::vector<std::string> prompts = {"Once upon a time", "The cat", "One day, a girl named Lily",
                                            "A boy", std::string(600, 'a') + " dog"};
  const auto body = [&](size_t prompt, int most) {
    return greedy({{"prompt", prompts[prompt]}, {"max_tokens", most}, {"stream", most % 2 == 0}});
  };
  std::vector<std::string> expected;
  for (size_t i = 0; i < prompts.size(); ++i)
    for (const int most : {5, 30}) expected.push_back(served.post("/v1/completions", body(i, most)).body);
  // Ids and times differ.
  const auto texts = [](std::string_view answer) {
    std::string all;
    for (size_t at = 0; (at = answer.find("\"text\":", at)) != std::string_view::npos; ++at)
      all += answer.substr(at, answer.find("\"logprobs\"", at) - at);
    return all;
  };
  const auto answers_wrongly = [&](std::mt19937& random) {
    const size_t prompt = random() % prompts.size();
    const bool is_long = random() % 2 == 0;
    std::string text = Served::request("/v1/completions", body(prompt, is_long ? 30 : 5));
    if (random() % 10 > 0)
      return texts(served.raw(text).body) != texts(expected[2 * prompt + (is_long ? 1 : 0)]);
    if (random() % 3 == 0) text = "\x01\x02" + text;
    if (random() % 3 == 0) text.resize(random() % text.size());
    const int fd = served.connect();
    ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
    ::close(fd);
    return false;
  };
  std::atomic<int> wrong{0};
  int64_t bytes[2] = {};
  for (unsigned round = 0; round < 2; ++round) {
    std::vector<std::thread> clients;
    for (unsigned client = 0; client < 32; ++client) {
      clients.emplace_back([&, random = std::mt19937(100 * round + client)]() mutable {
        for (int i = 0; i < kRequests; ++i) wrong += answers_wrongly(random) ? 1 : 0;
      });
    }
    for (std::thread& client : clients) client.join();
    // A request that arrived before its client hung up may begin between two steps.
    EXPECT_TRUE(served.waits_for("pages", 0));
    EXPECT_TRUE(served.waits_for("num_requests_running", 0));
    bytes[round] = served.resident_bytes();
  }
  EXPECT_EQ(wrong, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // freed memory stays resident there
  EXPECT_LT(bytes[1], bytes[0] + (int64_t{16} << 20));
#endif
  EXPECT_EQ(served.stop(SIGTERM), 0);
}

// Fields that clients read: `answers` texts, or the chunks of a stream.
void check_answer(const Json& answer, bool chat, bool chunk) {
  for (const char* key : {"id", "object", "created", "model", "choices"})
    EXPECT_TRUE(answer.contains(key)) << key;
  for (const Json& choice : answer["choices"]) {
    EXPECT_TRUE(choice["index"].is_number_integer());
    EXPECT_TRUE(choice["finish_reason"] == "stop" || choice["finish_reason"] == "length" ||
                (chunk && choice["finish_reason"].is_null()));
    if (!chat) {
      EXPECT_TRUE(choice["text"].is_string());
    } else if (!chunk) {
      EXPECT_EQ(choice["message"]["role"], "assistant");
      EXPECT_TRUE(choice["message"]["content"].is_string());
    }
  }
  if (chunk) return;
  const Json& usage = answer["usage"];
  EXPECT_EQ(usage["total_tokens"].get<int>(),
            usage["prompt_tokens"].get<int>() + usage["completion_tokens"].get<int>());
}

// lm-eval sums token_logprobs[... : -1], and calls a text greedy if each is the largest of its top_logprobs.
void check_scores(const Json& prompt, const Json& choice) {
  const Json& scores = choice["logprobs"]["token_logprobs"];
  ASSERT_EQ(scores.size(), prompt.size() + 1);
  EXPECT_TRUE(scores[0].is_null());
  for (size_t i = 1; i < scores.size(); ++i) {
    double best = -INFINITY;
    for (const Json& one : choice["logprobs"]["top_logprobs"][i]) best = std::max(best, one.get<double>());
    EXPECT_LE(scores[i].get<double>(), best);
  }
}

// Requests that lm-eval and the openai client sent.
TEST(Serve, AnswersRecordedClients) {
  const TempFolder folder;
  std::filesystem::copy(kDemo, folder.path / "demo");
  folder.put("demo/chat_template.jinja",
             "{{ tools }}{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}");
  const Served served("-m " + (folder.path / "demo").string());
  std::istringstream lines(slurp(source_dir() / "tests/tools/clients.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    SCOPED_TRACE(line);
    const Json recorded = Json::parse(line);
    const Json& body = recorded["body"];
    const std::string path = recorded["path"], sent = body.is_null() ? "" : body.dump();
    std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                                   recorded["method"].get<std::string>(), path);
    for (const auto& [name, value] : recorded["headers"].items())
      text += name + ": " + value.get<std::string>() + "\r\n";
    if (!sent.empty()) text += fmt::format("Content-Length: {}\r\n", sent.size());
    const Reply reply = served.raw(text + "\r\n" + sent);
    EXPECT_EQ(reply.status, recorded["status"]) << reply.body;
    const bool chat = path == "/v1/chat/completions";
    if (reply.status != 200) {
      EXPECT_TRUE(reply.json()["error"]["message"].is_string());
    }
    if (reply.status != 200 || (!chat && path != "/v1/completions")) continue;
    if (body.value("stream", false)) {
      const std::vector<Json> chunks = chunks_of(reply.body);
      for (const Json& chunk : chunks) check_answer(chunk, chat, true);
      if (body.contains("stream_options")) {
        EXPECT_TRUE(chunks.back()["choices"].empty() && chunks.back().contains("usage"));
      }
      EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n"));
      continue;
    }
    const Json answer = reply.json();
    check_answer(answer, chat, false);
    const Json prompts = !chat && body["prompt"].is_array() ? body["prompt"] : Json::array({""});
    EXPECT_EQ(answer["choices"].size(), prompts.size() * body.value("n", size_t{1}));
    for (size_t i = 0; body.value("max_tokens", 0) == 1 && body.contains("echo") && i < prompts.size(); ++i)
      check_scores(prompts[i], answer["choices"][i]);
  }
}

// A kill leaves whole files, and the next server finds the prompt there.
TEST(Serve, FindsPromptsAfterARestart) {
  const TempFolder folder;
  const std::string arguments = "-m " + kDemo.string() + " --cache-dir " + (folder.path / "prompts").string();
  std::vector<int> prompt(1100);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int>(3 + i * i % 400);
  const auto ask = [&](const Served& served, const Json& more = {}) {
    Json body = greedy(more);
    body["prompt"] = prompt;
    return served.post("/v1/completions", body).json();
  };
  const auto shared = [](const Json& answer) {
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
  };
  Served served(arguments);
  const Json first = ask(served), again = ask(served);
  EXPECT_EQ(shared(first), 0);
  EXPECT_EQ(shared(again), 1024);
  EXPECT_EQ(served.stop(SIGKILL), 128 + SIGKILL);
  const Served restarted(arguments);
  EXPECT_EQ(shared(ask(restarted, {{"rope_scaling", "yarn/factor=4"}})), 0);
  const Json found = ask(restarted);
  EXPECT_EQ(shared(found), 1024);
  EXPECT_EQ(found["choices"][0]["text"], first["choices"][0]["text"]);
  // A damaged file is named, and left as it is.
  for (const auto& file : std::filesystem::directory_iterator(folder.path / "prompts"))
    std::filesystem::resize_file(file.path(), 5000);
  const Served damaged(arguments);
  EXPECT_EQ(shared(ask(damaged)), 0);
  EXPECT_TRUE(names(damaged.err(), "prompt- | .context")) << damaged.err();
}

TEST(Serve, AFullDiskCostsNoAnswer) {
  const TempFolder folder;
  const Served served("-m " + kDemo.string() + " --cache-dir " + folder.path.string(), [] {
    const rlimit most{1 << 16, 1 << 16};
    ::setrlimit(RLIMIT_FSIZE, &most);
  });
  const Json body = greedy({{"prompt", std::vector<int>(600, 7)}});
  EXPECT_EQ(served.post("/v1/completions", body).status, 200);
  EXPECT_TRUE(names(served.err(), "warning | prompt-")) << served.err();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST(Serve, SaysWhatIsWrongAtTheStart) {
  const Served served;
  expect_error(run_lariat("serve -m " + kDemo.string() + " --host example.com"), 2, "--host");
  expect_error(run_lariat("serve -m missing --port 0"), 1, "missing");
  expect_error(run_lariat(fmt::format("serve -m {} --port {}", kDemo.string(), served.port())), 1,
               "127.0.0.1 | in use");
  expect_error(run_lariat("serve --port 0 --cache-memory 0 --cache-dir x -m " + kDemo.string()), 2,
               "--cache-dir");
}

}  // namespace
}  // namespace lariat::test
