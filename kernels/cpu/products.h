#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/weight.h"

namespace lariat {

// The outputs of several products of one x, side by side, so that threads can share out all of them together.
// They are counted in units: rows of w, tiles of it, or tasks; units(product) says how many a product has.
template <class Units>
int64_t units_of(std::span<const Product> products, const Units& units) {
  int64_t sum = 0;
  for (const Product& product : products) sum += units(product);
  return sum;
}

// The units [first, last) of them all, product by product: body(product, from, to), counted within it.
template <class Units, class Body>
void for_products(std::span<const Product> products, int64_t first, int64_t last, const Units& units,
                  const Body& body) {
  int64_t begin = 0;  // of the product's units
  for (const Product& product : products) {
    const int64_t count = units(product);
    const int64_t from = std::max(first - begin, int64_t{0}), to = std::min(last - begin, count);
    if (from < to) body(product, from, to);
    begin += count;
  }
}

}  // namespace lariat
