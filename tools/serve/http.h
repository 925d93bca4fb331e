#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace lariat {

struct HttpRequest {
  std::string method, path, body;  // path: without the query
};

struct HttpHeader {
  std::string name, value;
};

// The answer to one request. Any thread may call; calls after a hang-up have no effect.
class HttpReply {
 public:
  class Connection;
  HttpReply(std::shared_ptr<Connection> connection, uint64_t turn)
      : connection_(std::move(connection)), turn_(turn) {}

  // Either a whole answer, or a stream: begin, write ..., end.
  void send(int status, const std::string& type, std::string body, const HttpHeader& header = {}) const;
  void begin(const std::string& type) const;
  void write(std::string piece) const;
  void end() const;
  // Called once on the I/O thread if the client hangs up, or reads too slowly, before the end.
  void on_hang_up(std::function<void()> then) const;

 private:
  std::shared_ptr<Connection> connection_;
  uint64_t turn_;
};

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address
  uint16_t port = 8080;            // 0: any free one
  std::string key;                 // of Authorization: Bearer and of api-key; empty: none
  // Limits, and seconds.
  uint64_t most_body = uint64_t{32} << 20, most_waiting = uint64_t{4} << 20;  // bytes; waiting: to be sent
  uint32_t most_head = uint32_t{16} << 10;
  size_t most_connections = 256;
  int64_t read_seconds = 30, write_seconds = 30, idle_seconds = 75;
};

// HTTP/1.1 on one thread, loopback or one address. Requests reach the handler only with an allowed Host, the
// key, and a JSON body if they have one: a page of another origin cannot send them.
class HttpServer {
 public:
  struct Parts;
  // Called on the I/O thread; answers now or later.
  using Handler = std::function<void(HttpRequest request, HttpReply reply)>;

  // Listens. Throws Error naming host and port.
  HttpServer(const HttpOptions& options, Handler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  uint16_t port() const;
  // Serves until stop() and the end of the answers then in work. tick: called ten times a second.
  void run(const std::function<void()>& tick);
  void stop();  // on the I/O thread: accepts no more

 private:
  std::unique_ptr<Parts> parts_;
};

bool is_loopback(std::string_view host);
// Whether they are equal, in a time that depends on the lengths alone.
bool equal_in_constant_time(std::string_view given, std::string_view key);

}  // namespace lariat
