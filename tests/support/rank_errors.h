// What the ranks of a test threw.
#pragma once

#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "base/error_text.h"

namespace cohort::testing {

inline std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return error_text(thrown);
  } catch (...) {
    return "something that is no std::exception";
  }
}

// Rethrows the first failure in rank order, if there is one. When several ranks failed, all are printed first: often
// the others failed because one did, and it need not be the first.
inline void rethrow_first(const std::vector<std::exception_ptr>& errors) {
  const auto first = std::find_if(errors.begin(), errors.end(), [](const auto& error) { return error != nullptr; });
  if (first == errors.end()) return;
  if (std::count(errors.begin(), errors.end(), nullptr) + 1 < std::ssize(errors)) {
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      if (errors[rank]) std::cerr << "rank " << rank << " threw: " << text_of(errors[rank]) << '\n';
    }
  }
  std::rethrow_exception(*first);
}

}  // namespace cohort::testing
