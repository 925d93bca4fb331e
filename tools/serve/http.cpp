// The only file that includes Boost.
#include "tools/serve/http.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/error.h"

namespace lariat {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

struct Refusal {
  int status;
  std::string message;
};

const char* reason_of(int status) {
  const auto text = http::obsolete_reason(static_cast<http::status>(status));
  return text.data();
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

std::string_view view(boost::string_view text) { return {text.data(), text.size()}; }

using Fields = http::request<http::string_body>;

// The only value of a header, "" if missing; unset if it is repeated.
std::optional<std::string> only(const Fields& head, http::field name) {
  const auto [first, last] = head.equal_range(name);
  if (first == last) return "";
  if (std::next(first) != last) return std::nullopt;
  return std::string(view(first->value()));
}

// "127.0.0.1:8080" -> "127.0.0.1", "[::1]" -> "::1"
std::string host_name(std::string_view host) {
  if (host.starts_with('[')) return lower(host.substr(1, host.find(']') - 1));
  return lower(host.substr(0, host.find(':')));
}

std::string error_body(const Refusal& refusal) {
  return fmt::format(
      R"({{"error":{{"message":"{}","type":"invalid_request_error","param":null,"code":null}}}})",
      refusal.message);
}

}  // namespace

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1";
}

bool equal_in_constant_time(std::string_view given, std::string_view key) {
  unsigned different = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < key.size(); ++i) {
    const char c = given.empty() ? '\0' : given[i % given.size()];
    different |= static_cast<unsigned char>(c ^ key[i]);
  }
  return different == 0;
}

struct HttpServer::Parts {
  Parts(const HttpOptions& given, Handler answers)
      : options(given), handler(std::move(answers)), acceptor(io), timer(io) {}

  HttpOptions options;
  Handler handler;
  asio::io_context io{1};
  tcp::acceptor acceptor;
  asio::steady_timer timer;
  std::set<std::shared_ptr<HttpReply::Connection>> connections;  // open
  bool stopping = false, accepting = false;

  void accept();
  void tick(const std::function<void()>& each);
};

// A client. All members belong to the I/O thread; HttpReply goes there.
class HttpReply::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, HttpServer::Parts* server) : stream_(std::move(socket)), server_(*server) {}

  void read_head() {
    if (server_.stopping) return close();
    ++turn_;
    answering_ = begun_ = false;
    parser_.emplace();
    parser_->header_limit(server_.options.most_head);
    parser_->body_limit(server_.options.most_body);
    expire_after(turn_ == 1 ? server_.options.read_seconds : server_.options.idle_seconds);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, size_t) { self->read_body(error); });
  }

  void refuse(const Refusal& refusal) {
    keep_alive_ = false;
    answering_ = true;
    respond(refusal.status, "application/json", error_body(refusal), {});
  }

  bool idle() const { return !answering_; }
  void close() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
    server_.connections.erase(shared_from_this());
  }

  // At once on the I/O thread: asio::post would order its work after the engine's.
  template <class Work>
  void on_thread(uint64_t turn, Work work) {
    asio::dispatch(stream_.get_executor(),
                   [self = shared_from_this(), turn, work = std::move(work)]() mutable {
                     if (self->turn_ == turn && self->answering_) work(*self);
                   });
  }

  void respond(int status, const std::string& type, const std::string& body, const HttpHeader& header) {
    std::string head = head_of(status, type, header) + fmt::format("Content-Length: {}\r\n\r\n", body.size());
    ended_ = true;
    queue(head_only_ ? std::move(head) : head + body);
  }
  void begin(const std::string& type) {
    begun_ = true;
    queue(head_of(200, type, {"Cache-Control", "no-store"}) +
          (chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n"));
  }
  void write(const std::string& piece) {
    if (piece.empty()) return;
    queue(chunked_ ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : piece);
  }
  void end() {
    ended_ = true;
    queue(chunked_ ? "0\r\n\r\n" : "");
  }
  void on_hang_up(std::function<void()> then) { hang_up_ = std::move(then); }

 private:
  void expire_after(int64_t seconds) { stream_.expires_after(std::chrono::seconds(seconds)); }

  void read_body(error_code error) {
    if (error) return fail(error);
    const Fields& head = parser_->get();
    keep_alive_ = parser_->keep_alive();
    chunked_ = head.version() >= 11;
    head_only_ = head.method() == http::verb::head;
    if (const auto refusal = refused(head)) return refuse(*refusal);
    if (lower(view(head[http::field::expect])) == "100-continue") queue("HTTP/1.1 100 Continue\r\n\r\n");
    expire_after(server_.options.read_seconds);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](error_code failed, size_t) { self->dispatch(failed); });
  }

  // Checked before the body is read. Values are compared here: Beast 1.74 accepts "chunked" among others.
  std::optional<Refusal> refused(const Fields& head) const {
    const auto host = only(head, http::field::host), coding = only(head, http::field::transfer_encoding),
               type = only(head, http::field::content_type), key = only(head, http::field::authorization);
    if (!host || host->empty()) return Refusal{400, "one Host header is needed"};
    if (!coding || (!coding->empty() && lower(*coding) != "chunked"))
      return Refusal{400, "Transfer-Encoding: only chunked is supported"};
    if (head.count(http::field::content_encoding) > 0)
      return Refusal{415, "Content-Encoding: not supported; send the body as it is"};
    const HttpOptions& options = server_.options;
    if (is_loopback(options.host) && !is_loopback(host_name(*host)))
      return Refusal{403, "Host: not a name of this server"};
    const std::string target = path_of(head);
    if (!options.key.empty() && target != "/health" && target != "/" &&
        !equal_in_constant_time(bearer(key.value_or("")), options.key) &&
        !equal_in_constant_time(view(head["api-key"]), options.key))
      return Refusal{401, "the API key is missing or wrong; send it as Authorization: Bearer"};
    if (head.method() != http::verb::post) return std::nullopt;
    if (lower(type.value_or("").substr(0, type.value_or("").find(';'))) != "application/json")
      return Refusal{415, "Content-Type: only application/json is supported"};
    return std::nullopt;
  }

  static std::string_view bearer(std::string_view value) {
    constexpr std::string_view kScheme = "bearer ";
    if (lower(value.substr(0, kScheme.size())) != kScheme) return "";
    return value.substr(kScheme.size());
  }
  static std::string path_of(const Fields& head) {
    const std::string_view target = view(head.target());
    return std::string(target.substr(0, target.find('?')));
  }

  void dispatch(error_code error) {
    if (error) return fail(error);
    stream_.expires_never();
    answering_ = true;
    HttpRequest request{std::string(view(parser_->get().method_string())), path_of(parser_->get()),
                        std::move(parser_->get().body())};
    watch();
    server_.handler(std::move(request), HttpReply(shared_from_this(), turn_));
  }

  // Bytes that the client sends early end the watch: they belong to its next request.
  void watch() {
    stream_.socket().async_wait(tcp::socket::wait_read,
                                [self = shared_from_this(), turn = turn_](error_code error) {
                                  if (error || self->turn_ != turn || !self->answering_) return;
                                  char byte = 0;
                                  const int fd = self->stream_.socket().native_handle();
                                  const auto n = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
                                  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return self->watch();
                                  if (n <= 0) self->hang_up();
                                });
  }

  void hang_up() {
    answering_ = false;
    if (const auto then = std::exchange(hang_up_, nullptr)) then();
    close();
  }

  void fail(error_code error) {
    if (error == http::error::body_limit)
      return refuse({413, fmt::format("the body exceeds {} bytes", server_.options.most_body)});
    if (error == http::error::header_limit)
      return refuse({431, fmt::format("the headers exceed {} bytes", server_.options.most_head)});
    const auto& of_syntax = http::make_error_code(http::error::bad_method).category();
    if (error.category() != of_syntax || error == http::error::end_of_stream) return close();  // or too slow
    refuse({400, "not a valid HTTP request: " + error.message()});
  }

  std::string head_of(int status, const std::string& type, const HttpHeader& header) const {
    std::string head = fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nX-Content-Type-Options: nosniff\r\nConnection: {}\r\n", status,
        reason_of(status), type, keep_alive_ && (ended_ || chunked_) ? "keep-alive" : "close");
    if (!header.name.empty()) head += fmt::format("{}: {}\r\n", header.name, header.value);
    return head;
  }

  void queue(std::string bytes) {
    waiting_bytes_ += bytes.size();
    waiting_.push_back(std::move(bytes));
    if (waiting_bytes_ > server_.options.most_waiting && begun_) return hang_up();
    if (waiting_.size() == 1) flush();
  }

  void flush() {
    expire_after(server_.options.write_seconds);
    asio::async_write(stream_, asio::buffer(waiting_.front()),
                      [self = shared_from_this()](error_code error, size_t) { self->written(error); });
  }

  void written(error_code error) {
    if (error) return hang_up();
    waiting_bytes_ -= waiting_.front().size();
    waiting_.pop_front();
    if (!waiting_.empty()) return flush();
    if (answering_) stream_.expires_never();
    if (ended_) finish();
  }

  void finish() {
    ended_ = false;
    hang_up_ = nullptr;
    if (keep_alive_ && (chunked_ || !begun_)) return read_head();
    answering_ = false;
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    expire_after(2);
    drain(0);
  }

  // Closing with unread bytes would reset the connection before the client has read the answer.
  void drain(size_t done) {
    auto bytes = std::make_shared<std::string>(size_t{1} << 16, '\0');
    stream_.async_read_some(asio::buffer(*bytes),
                            [self = shared_from_this(), bytes, done](error_code error, size_t n) {
                              if (error || done + n > self->server_.options.most_body) return self->close();
                              self->drain(done + n);
                            });
  }

  beast::tcp_stream stream_;
  HttpServer::Parts& server_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::deque<std::string> waiting_;  // to be written; the first is being written
  size_t waiting_bytes_ = 0;
  uint64_t turn_ = 0;  // number of the request
  bool answering_ = false, begun_ = false, ended_ = false;
  bool keep_alive_ = false, chunked_ = true, head_only_ = false;
  std::function<void()> hang_up_;
};

void HttpReply::send(int status, const std::string& type, std::string body, const HttpHeader& header) const {
  connection_->on_thread(
      turn_, [=, body = std::move(body)](Connection& c) { c.respond(status, type, body, header); });
}
void HttpReply::begin(const std::string& type) const {
  connection_->on_thread(turn_, [type](Connection& c) { c.begin(type); });
}
void HttpReply::write(std::string piece) const {
  connection_->on_thread(turn_, [piece = std::move(piece)](Connection& c) { c.write(piece); });
}
void HttpReply::end() const {
  connection_->on_thread(turn_, [](Connection& c) { c.end(); });
}
void HttpReply::on_hang_up(std::function<void()> then) const {
  connection_->on_thread(turn_,
                         [then = std::move(then)](Connection& c) mutable { c.on_hang_up(std::move(then)); });
}

void HttpServer::Parts::accept() {
  accepting = true;
  acceptor.async_accept([this](error_code error, tcp::socket socket) {
    accepting = false;
    if (stopping || error) return;  // as with too many open files; tick() tries again
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    const bool full = connections.size() >= options.most_connections;
    const auto connection = std::make_shared<HttpReply::Connection>(std::move(socket), this);
    connections.insert(connection);
    full ? connection->refuse({503, "too many connections"}) : connection->read_head();
    accept();
  });
}

void HttpServer::Parts::tick(const std::function<void()>& each) {
  timer.expires_after(std::chrono::milliseconds(100));
  timer.async_wait([this, &each](error_code) {
    each();
    if (!stopping && !accepting) accept();
    if (!stopping) return tick(each);
    for (const auto& connection : std::set(connections))
      if (connection->idle()) connection->close();
    if (!connections.empty()) tick(each);
  });
}

HttpServer::HttpServer(const HttpOptions& options, Handler handler)
    : parts_(std::make_unique<Parts>(options, std::move(handler))) {
  const std::string where = fmt::format("--host {} --port {}", options.host, options.port);
  error_code error;
  const auto address =
      asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
  if (error) throw UsageError("--host: not an address; use 127.0.0.1, ::1 or this machine's address");
  tcp::acceptor& acceptor = parts_->acceptor;
  const tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) throw Error(fmt::format("{}: {}; use another", where, error.message()));
  parts_->accept();
}

HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const { return parts_->acceptor.local_endpoint().port(); }

void HttpServer::run(const std::function<void()>& tick) {
  parts_->tick(tick);
  parts_->io.run();
}

void HttpServer::stop() {
  if (std::exchange(parts_->stopping, true)) return;
  error_code ignored;
  parts_->acceptor.close(ignored);
}

}  // namespace lariat
