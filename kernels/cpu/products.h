#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/weight.h"

namespace lariat {

// Outputs of several products of one x, counted in units so that threads can share them. units(product): rows
// of w, tiles of w, or tasks.
template <class Units>
int64_t units_of(std::span<const Product> products, const Units& units) {
  int64_t sum = 0;
  for (const Product& product : products) sum += units(product);
  return sum;
}

// Calls body(product, from, to) for units [first, last) of all products, counted within the product.
template <class Units, class Body>
void for_products(std::span<const Product> products, int64_t first, int64_t last, const Units& units,
                  const Body& body) {
  int64_t begin = 0;
  for (const Product& product : products) {
    const int64_t count = units(product);
    const int64_t from = std::max(first - begin, int64_t{0}), to = std::min(last - begin, count);
    if (from < to) body(product, from, to);
    begin += count;
  }
}

}  // namespace lariat
