#pragma once
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <thread>

#include "tests/tools/program.h"

namespace lariat::test {

struct Reply {
  int status = 0;
  std::string head, body;
  Json json() const { return Json::parse(body); }
};

// The pieces of a chunked body.
std::string joined(std::string_view chunks) {
  std::string body;
  while (!chunks.empty()) {
    const size_t end = chunks.find("\r\n"), n = std::stoul(std::string(chunks.substr(0, end)), nullptr, 16);
    body += chunks.substr(end + 2, n);
    chunks.remove_prefix(end + 2 + n + 2);
  }
  return body;
}

Reply parsed(const std::string& text) {
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
  explicit Served(const std::string& arguments = "-m " + kDemo.string(), const std::string& first = "") {
    const auto err = folder_.path / "err";
    pid_ = ::fork();
    if (pid_ == 0) {
      const int to = ::open(err.c_str(), O_WRONLY | O_CREAT, 0600);
      ::dup2(to, STDERR_FILENO);
      const std::string command = first + "exec " + lariat_program() + " serve --port 0 " + arguments;
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    for (int wait = 0; wait < 600 && port_ == 0 && alive(); ++wait) {
      const std::string text = std::filesystem::exists(err) ? slurp(err) : "";
      const size_t at = text.find("http://127.0.0.1:");
      if (at != std::string::npos && text.find("/v1", at) != std::string::npos)
        port_ = std::stoi(text.substr(at + 17));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served() {
    if (code_ < 0) stop(SIGKILL);
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
    for (int wait = 0; wait < 1000 && metric(name) != value; ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return metric(name) == value;
  }
  int64_t resident_bytes() const {
    std::istringstream pages(slurp(fmt::format("/proc/{}/statm", pid_)));
    int64_t all = 0, resident = 0;
    pages >> all >> resident;
    return resident * ::sysconf(_SC_PAGESIZE);
  }
  std::string err() const { return slurp(folder_.path / "err"); }
  int port() const { return port_; }
  // Returns the exit code, 128 + n after signal n.
  int stop(int signal) {
    ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  bool alive() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }

  const TempFolder folder_;
  pid_t pid_ = 0;
  int port_ = 0, code_ = -1;
};

}  // namespace lariat::test
