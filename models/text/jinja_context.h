#pragma once
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/jinja_value.h"

namespace lariat::jinja {

class Depth {
 public:
  Depth(int& depth, int most, const std::string& what, int line = 0) : depth_(depth) {
    if (depth_ == most) throw Failure(what, line);
    ++depth_;
  }
  ~Depth() { --depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  int& depth_;
};

// A conversation of 1,000 messages takes some 200,000 steps. Each byte of text made, copied or searched
// counts: one number bounds memory and time.
struct Limits {
  uint64_t steps = 4'000'000;
  uint64_t bytes = uint64_t{256} << 20;
  uint64_t text_bytes = uint64_t{32} << 20;  // per text, output included
};

class Context {
 public:
  Context(const Limits& limits, std::time_t time) : now(time), limits_(limits) {}

  void step(uint64_t n = 1) {
    if ((steps_ += n) > limits_.steps)
      throw Failure("the template takes more steps than any chat needs; is it endless?");
  }
  void charge(uint64_t bytes) {
    if ((bytes_ += bytes) > limits_.bytes) throw Failure("the template makes more text than any chat needs");
  }
  // Reserves a text of `bytes` bytes, `fresh` of them new.
  void reserve_text(uint64_t bytes) { reserve_text(bytes, bytes); }
  void reserve_text(uint64_t bytes, uint64_t fresh) {
    if (bytes > limits_.text_bytes) throw Failure("the template makes a text longer than any chat needs");
    charge(fresh);
  }

  // Counts nested statements and expressions, also through macros. Real templates reach 40.
  Depth enter() {
    static const std::string kWhat = "macros or expressions nested too deeply; is a macro calling itself?";
    step();
    return Depth(depth_, 400, kWhat);
  }
  void emit(std::string_view text) {
    reserve_text(out.size() + text.size(), text.size());
    out += text;
  }

  // The variable of this or an outer scope, else the function, else undefined.
  Value lookup(std::string_view name) const;
  // `name` must outlive the scope.
  void define(std::string_view name, Value value);
  size_t scope() const { return frame_; }

  const std::time_t now;
  int line = 0;
  std::string out;
  bool in_condition = false;  // of a loop

 private:
  friend class Scope;
  struct Frame {
    std::vector<std::pair<std::string_view, Value>> variables;
    size_t parent = 0;
  };

  Limits limits_;
  uint64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
  std::vector<Frame> frames_{1};
  size_t frame_ = 0, top_ = 0;
};

class Scope {
 public:
  explicit Scope(Context& cx) : Scope(cx, cx.frame_) {}
  Scope(Context& cx, size_t parent) : cx_(cx), outer_(cx.frame_) {
    cx.frame_ = ++cx.top_;
    if (cx.frames_.size() <= cx.top_) cx.frames_.emplace_back();
    cx.frames_[cx.top_].parent = parent;
  }
  ~Scope() {
    cx_.frames_[cx_.top_--].variables.clear();
    cx_.frame_ = outer_;
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Context& cx_;
  size_t outer_;
};

}  // namespace lariat::jinja
