// Variables of parameter servers for the fuzzers: one that lies on one server, a table cut by rows, and a number.
#pragma once

#include <torch/types.h>

#include <memory>

#include "wings/parameter_server/server/server.h"

namespace cohort::fuzz {

inline std::shared_ptr<const Catalog> catalog_of(int servers) {
  auto made = std::make_shared<Catalog>(servers);
  const auto fill = [](const torch::Tensor& rows, int64_t) { rows.zero_(); };
  made->declare({.name = "w", .shape = {4, 2}, .optimizer = Adam(), .initializer = fill});
  made->declare({.name = "t", .shape = {8, 2}, .optimizer = Adagrad(), .by_rows = true, .initializer = fill});
  made->declare({.name = "n", .shape = {}, .dtype = torch::kLong, .initializer = fill});
  return made;
}

}  // namespace cohort::fuzz
