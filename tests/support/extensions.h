// Extensions: what tests give the core in the place of what wings have.
#pragma once

#include <utility>
#include <vector>

#include "base/extension.h"

namespace cohort::testing {

// Stands in for all extensions of a kind while it lives.
template <typename T>
class Extensions {
 public:
  explicit Extensions(std::vector<T> all) {
    install_wings();
    before_ = std::exchange(detail::extension_list<T>(), std::move(all));
  }
  Extensions(const Extensions&) = delete;
  Extensions& operator=(const Extensions&) = delete;
  ~Extensions() { detail::extension_list<T>() = std::move(before_); }

 private:
  std::vector<T> before_;
};

}  // namespace cohort::testing
