#include <fmt/format.h>

#include <algorithm>

#include "kernels/counted.h"
#include "models/io/text_file.h"
#include "tools/help.h"
#include "tools/options.h"
#include "tools/serve/http.h"
#include "tools/serve/openai.h"
#include "tools/serve/page.h"
#include "tools/signals.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

struct ServeCommand {
  CommonOptions common;
  HttpOptions http;
  ServiceOptions service;
  std::filesystem::path key_file;
  uint64_t cache_memory = uint64_t{1} << 30;
};

constexpr const char* kJson = "application/json";

class Server {
 public:
  Server(const ServeCommand& command, const Engine& engine)
      : model_{engine, command.common.model.lexically_normal().filename().string()},
        at_once_(command.service.at_once),
        service_(engine, command.service),
        http_(command.http, [this](HttpRequest request, const HttpReply& reply) { answer(request, reply); }) {
    if (model_.name.empty()) model_.name = "model";
    model_.chat_eos_ids = engine.eos_ids();
    model_.eos_ids = engine.model.spec.eos_token_ids;
    if (model_.eos_ids.empty()) model_.eos_ids = engine.tokenizer->eos_ids();
  }

  void run(const ServeCommand& command) {
    if (!is_loopback(command.http.host) && command.http.key.empty())
      print_warnings({"--host: anyone on the network can use the model; add --api-key-file"},
                     command.common.quiet);
    if (!command.common.quiet)
      say(fmt::format("listening on http://{}:{}/v1", command.http.host, http_.port()));
    http_.run([this] {
      if (!interrupted()) return;
      service_.cancel_all();
      http_.stop();
    });
  }

 private:
  static void fail(const HttpReply& reply, const ApiError& error) {
    reply.send(error.status, kJson, json_text(to_json(error)),
               error.status == 429 ? HttpHeader{"Retry-After", "1"} : HttpHeader{});
  }

  void answer(const HttpRequest& request, const HttpReply& reply) {
    try {
      route(request, reply);
    } catch (const ApiError& error) {
      fail(reply, error);
    } catch (const Error& error) {
      fail(reply, {400, error.what()});
    } catch (const std::bad_alloc&) {
      fail(reply, {503, "out of memory", "server_error"});
    } catch (const std::exception& error) {
      fail(reply, {500, error.what(), "server_error"});
    }
  }

  void route(const HttpRequest& request, const HttpReply& reply) {
    const bool post = request.method == "POST", get = request.method == "GET" || request.method == "HEAD";
    const std::string& path = request.path;
    const auto json = [&](const Json& body) { reply.send(200, kJson, json_text(body)); };
    if (post && path == "/v1/completions") return write(parse_completion(model_, request.body), reply);
    if (post && path == "/v1/chat/completions") return write(parse_chat(model_, request.body), reply);
    if (post && path == "/tokenize") return json(tokenize_json(model_, request.body));
    if (post && path == "/detokenize") return json(detokenize_json(model_, request.body));
    if (get && path == "/tokenizer_info") return json(tokenizer_info(model_));
    if (get && path == "/v1/models") return json(models());
    if (get && path == "/v1/models/" + model_.name) return json(models()["data"][0]);
    if (get && path == "/") {
      return reply.send(
          200, "text/html; charset=utf-8", kPage,
          {"Content-Security-Policy",
           "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
           "img-src data:"});
    }
    if (get && path == "/health") return json({{"status", "ok"}});
    if (get && path == "/metrics") return reply.send(200, "text/plain; version=0.0.4", metrics());
    throw ApiError(404, "no such route: " + request.method + " " + path, "not_found_error");
  }

  Json models() const {
    return {{"object", "list"},
            {"data", Json::array({{{"id", model_.name},
                                   {"object", "model"},
                                   {"created", 0},
                                   {"owned_by", "lariat"},
                                   {"max_model_len", max_model_len(model_)}}})}};
  }

  std::string metrics() const {
    const ServiceState state = service_.state();
    std::string text;
    const auto add = [&](const char* name, const char* type, auto value) {
      text += fmt::format("# TYPE lariat:{0} {1}\nlariat:{0} {2}\n", name, type, value);
    };
    const auto add_texts = [&](const char* name, auto TextState::*value) {
      text += fmt::format("# TYPE lariat:{} gauge\n", name);
      for (const auto& [number, one] : state.running)
        text += fmt::format("lariat:{}{{text=\"{}\"}} {}\n", name, number, one.*value);
    };
    add("requests_total", "counter", state.requests);
    add("prompt_tokens_total", "counter", state.prompt_tokens);
    add("generation_tokens_total", "counter", state.new_tokens);
    add("shared_prompt_tokens_total", "counter", state.shared_tokens);
    add("restarts_total", "counter", state.restarts);
    add("num_requests_running", "gauge", std::min(state.texts, at_once_));
    add("num_requests_waiting", "gauge", std::max<int64_t>(state.texts - at_once_, 0));
    add("pages", "gauge", state.pages);
    add("free_pages", "gauge", state.free_pages);
    add("rerotations_total", "counter", state.rerotations);
    add("generation_tokens_per_second", "gauge", state.tokens_per_second);
    add_texts("text_length", &TextState::length);
    add_texts("text_rope_scale", &TextState::rope_scale);
    add_texts("text_rerotations", &TextState::rerotations);
    return text;
  }

  void write(const std::shared_ptr<Asked>& asked, const HttpReply& reply) {
    const auto send = [reply](const Json& json) { reply.write("data: " + json_text(json) + "\n\n"); };
    if (asked->stream) {
      for (size_t i = 0; i < asked->choices.size(); ++i)
        asked->texts->texts[i].on_text = [this, asked = asked.get(), send, i](const std::string& piece) {
          send(text_chunk(model_, *asked, i, piece));
          return true;
        };
    }
    // The request lives in its own callback until that has been called.
    asked->texts->on_end = [this, asked, reply, send](ServedTexts& all) {
      const auto done = std::exchange(all.on_end, nullptr);
      try {
        check_errors(*asked);
        if (!asked->stream) return reply.send(200, kJson, json_text(answer_json(model_, *asked)));
        for (size_t i = 0; i < asked->choices.size(); ++i) send(last_chunk(model_, *asked, i));
        if (asked->include_usage) send(usage_chunk(*asked));
        reply.write("data: [DONE]\n\n");
      } catch (const ApiError& error) {
        if (!asked->stream) return fail(reply, error);
        send(to_json(error));
      }
      reply.end();
    };
    if (!service_.add(asked->texts)) {
      asked->texts->on_end = nullptr;
      throw ApiError(429, "too many requests wait; try again later", "rate_limit_error");
    }
    // The head goes first, because the engine's pieces wait for the I/O thread, which runs this.
    reply.on_hang_up([this, texts = std::weak_ptr(asked->texts)] {
      if (const auto alive = texts.lock()) service_.cancel(alive);
    });
    if (!asked->stream) return;
    reply.begin("text/event-stream");
    for (size_t i = 0; asked->chat && i < asked->choices.size(); ++i) send(first_chunk(*asked, i));
  }

  ServedModel model_;
  int64_t at_once_;
  Service service_;
  HttpServer http_;
};

void run(ServeCommand& command) {
  if (!command.key_file.empty()) {
    command.http.key = read_file(command.key_file, 4096);
    command.http.key.erase(command.http.key.find_last_not_of(" \t\r\n") + 1);
    if (command.http.key.empty()) throw Error(command.key_file.string() + ": no key; write one line");
  }
  if (!command.service.cache_dir.empty() && command.cache_memory == 0)
    throw UsageError("--cache-dir: needs --cache-memory, from which prompts are saved");
  Engine engine = open_engine(command.common, Reads::kServed);
  engine.session_options.prefix_memory = command.cache_memory;
  command.service.cache_dir_bytes = 16 * command.cache_memory;
  command.service.warn = [quiet = command.common.quiet](const std::string& line) {
    print_warnings({line}, quiet);
  };
  Server server(command, engine);
  server.run(command);
}

}  // namespace

void add_serve_command(CLI::App& app) {
  auto command = std::make_shared<ServeCommand>();
  CLI::App& sub = add_command(app, "serve", "Answer HTTP requests in OpenAI's shapes", kUseCommands,
                              "lariat serve --model DIR --port 8080");
  add_model_option(sub, command->common);
  sub.add_option("--host", command->http.host, "address to listen on");
  sub.add_option("--port", command->http.port, "port to listen on; 0: any free one");
  sub.add_option("--api-key-file", command->key_file, "file with the key that requests need")
      ->type_name("FILE");
  sub.add_option("--parallel", command->service.at_once, "most texts at once; others wait")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16));
  sub.add_option("--cache-memory", command->cache_memory, "most bytes of ended texts' prompts, as 1GiB")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("1GiB");
  sub.add_option("--cache-dir", command->service.cache_dir,
                 "also save them in this folder, and find them after a restart")
      ->type_name("DIR");
  add_common_options(sub, command->common);
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
