// Bodies of `lariat serve`'s requests; or, after a first byte above 3, bytes that a client sends it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "tests/fuzz/fuzz.h"
#include "tools/serve/http.h"
#include "tools/serve/openai.h"

namespace {

using namespace lariat;

const ServedModel& model() {
  static const auto* const kEngine = [] {
    auto* engine =
        new Engine(Engine::open(LARIAT_SOURCE_DIR "/configs/demo", {.device = "cpu", .threads = 1}));
    engine->session_options.max_ctx = 4096;
    engine->chat =
        ChatTemplate::parse("{% for m in messages %}{{ m.role + ':' + m.content }}{% endfor %}", "", {});
    return engine;
  }();
  static const ServedModel kModel{*kEngine, "demo", kEngine->eos_ids(), kEngine->eos_ids()};
  return kModel;
}

// Its thread ends with the process.
int open_server() {
  HttpOptions options;
  options.port = 0;
  options.most_body = 1 << 14;
  options.most_head = 1 << 10;
  auto* const server = new HttpServer(options, [](const HttpRequest& request, const HttpReply& reply) {
    fuzz::require(!request.method.empty() && !request.path.empty(), "a request without method or path");
    fuzz::require(request.body.size() <= 1 << 14, "a body beyond the limit");
    reply.send(200, "text/plain", request.body);
  });
  std::thread([server] { server->run([] {}); }).detach();
  return server->port();
}

void send_bytes(std::string_view bytes) {
  static const int kPort = open_server();
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(kPort));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  fuzz::require(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0, "the server is gone");
  const linger reset{1, 0};  // else closed connections use up the ports
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::shutdown(fd, SHUT_WR);
  std::string answer;
  char part[4096];
  for (ssize_t n = 0; (n = ::recv(fd, part, sizeof(part), 0)) > 0;)
    answer.append(part, static_cast<size_t>(n));
  ::close(fd);
  fuzz::require(answer.empty() || answer.starts_with("HTTP/1.1 "), "an answer that is not HTTP");
}

void check(const Asked& asked) {
  fuzz::require(!asked.choices.empty(), "a request without texts");
  fuzz::require(asked.choices.size() == asked.texts->texts.size(), "a choice without its text");
}

}  // namespace

FUZZ_TARGET(served) {
  if (input.empty()) return;
  const int kind = input.front() & 7;
  input.remove_prefix(1);
  if (kind > 3) return send_bytes(input);
  fuzz::accepted([&] {
    if (kind == 0) check(*parse_completion(model(), input));
    if (kind == 1) check(*parse_chat(model(), input));
    if (kind == 2)
      tokenize_json(model(), input).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    if (kind == 3)
      detokenize_json(model(), input).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  });
}
