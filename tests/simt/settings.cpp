#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>

#include "tests/simt/simt.h"

namespace simt {
namespace {

// Number after `prefix`; `otherwise` if the variable is unset.
unsigned environment_number(const char* name, std::string_view prefix, unsigned otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  const std::string_view all = text;
  unsigned number = 0;
  if (all.starts_with(prefix)) {
    const auto [end, error] = std::from_chars(text + prefix.size(), text + all.size(), number);
    if (error == std::errc() && end == text + all.size() && number > 0) return number;
  }
  std::fprintf(stderr, "simt: %s is \"%s\"; expected %sN with N from 1 on\n", name, text, prefix.data());
  std::exit(2);
}

struct Settings {
  int multiprocessors = static_cast<int>(environment_number("LARIAT_SIMT_SMS", "", 4));
  std::string order_text = "forward";
  Order order = Order::kForward;
  std::mt19937 random;

  Settings() {
    const char* text = std::getenv("LARIAT_SIMT_ORDER");
    if (text != nullptr) order_text = text;
    if (order_text == "forward") return;
    order = order_text == "backward" ? Order::kBackward : Order::kRandom;
    if (order == Order::kRandom) random.seed(environment_number("LARIAT_SIMT_ORDER", "random:", 0));
  }
};
Settings g_settings;

}  // namespace

void set_order(Order order) { g_settings.order = order; }
Order order() { return g_settings.order; }
int multiprocessors() { return g_settings.multiprocessors; }
std::string settings() {
  return "LARIAT_SIMT_SMS=" + std::to_string(multiprocessors()) +
         " LARIAT_SIMT_ORDER=" + g_settings.order_text;
}

void put_in_order(std::vector<uint32_t>& indices, size_t count) {
  indices.resize(count);
  std::iota(indices.begin(), indices.end(), 0U);
  if (order() == Order::kBackward) std::reverse(indices.begin(), indices.end());
  if (order() == Order::kRandom) std::shuffle(indices.begin(), indices.end(), g_settings.random);
}

}  // namespace simt
