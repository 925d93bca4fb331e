#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <regex>

#include "tests/faults/process.h"

namespace lariat::test {

struct Reply {
  int status = 0;
  std::string head, body;
  Json json() const { return Json::parse(body); }
};

// The pieces of a chunked body.
inline std::string joined(std::string_view chunks) {
  std::string body;
  while (!chunks.empty()) {
    const size_t end = chunks.find("\r\n"), n = std::stoul(std::string(chunks.substr(0, end)), nullptr, 16);
    body += chunks.substr(end + 2, n);
    chunks.remove_prefix(end + 2 + n + 2);
  }
  return body;
}

inline Reply parsed(const std::string& text) {
  Reply reply;
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return reply;
  reply.head = text.substr(0, end + 2);
  reply.body = text.substr(end + 4);
  reply.status = std::stoi(reply.head.substr(9, 3));
  if (reply.head.find("Transfer-Encoding: chunked") != std::string::npos) reply.body = joined(reply.body);
  return reply;
}

// `lariat serve` on a free port.
class Served {
 public:
  explicit Served(const std::string& arguments = "-m " + kDemo.string(),
                  const std::function<void()>& prepare = {})
      : process_(folder_.path, words("serve --port 0 " + arguments), prepare) {
    const auto has_port = [&] {
      std::smatch match;
      const std::string text = err();
      if (std::regex_search(text, match, std::regex(":([0-9]+)/v1"))) port_ = std::stoi(match[1]);
      return port_ > 0;
    };
    EXPECT_TRUE(eventually(has_port)) << err();
  }

  int connect() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{.sin_family = AF_INET,
                   .sin_port = htons(static_cast<uint16_t>(port_)),
                   .sin_addr = {},
                   .sin_zero = {}};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    return fd;
  }
  Reply raw(const std::string& text) const {
    const int fd = connect();
    EXPECT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
    std::string all;
    char bytes[4096];
    for (ssize_t n = 0; (n = ::recv(fd, bytes, sizeof(bytes), 0)) > 0;)
      all.append(bytes, static_cast<size_t>(n));
    ::close(fd);
    return parsed(all);
  }
  static std::string request(const std::string& route, const Json& body, const std::string& more = "") {
    const std::string text = body.dump();
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{}"
        "Content-Length: {}\r\n\r\n{}",
        route, more, text.size(), text);
  }
  Reply post(const std::string& route, const Json& body) const { return raw(request(route, body)); }
  Reply get(const std::string& route) const {
    return raw("GET " + route + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
  }
  int64_t metric(const std::string& name) const {
    const std::string text = get("/metrics").body, line = "\nlariat:" + name + " ";
    return std::stoll(text.substr(text.find(line) + line.size()));
  }
  bool waits_for(const std::string& name, int64_t value) const {
    return eventually([&] { return metric(name) == value; });
  }
  int64_t resident_bytes() const {
    std::istringstream pages(slurp(fmt::format("/proc/{}/statm", process_.pid())));
    int64_t all = 0, resident = 0;
    pages >> all >> resident;
    return resident * ::sysconf(_SC_PAGESIZE);
  }
  std::string err() const { return process_.err(); }
  int port() const { return port_; }
  // Returns the exit code, 128 + n after signal n.
  int stop(int signal) {
    process_.signal(signal);
    return process_.wait().code;
  }

 private:
  const TempFolder folder_;
  Process process_;
  int port_ = 0;
};

}  // namespace lariat::test
