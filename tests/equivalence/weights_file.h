// The file of weights that workers write of a model that is divided among them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/access.h"
#include "strategy/core.h"
#include "strategy/module_pieces.h"
#include "tests/equivalence/outcomes.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::equivalence {

// Saves the weights on every worker of a model whose parts the workers have, and holds the chief's file, byte for byte,
// to that of all weights in one place.
inline void expect_whole_file(const Sequential& model, const std::filesystem::path& folder) {
  const bool chief = Access::core(model.strategy())->worker_rank() == 0;
  ASSERT_TRUE(is_divided(model.module()));
  model.save_weights(folder / (chief ? "divided" : "other"), {{"note", "mine"}});
  EXPECT_FALSE(std::filesystem::exists(folder / "other"));
  const NamedTensors all = model.weights();
  if (chief) {
    save_weights(folder / "gathered", all, load_weights(folder / "divided").metadata);
    EXPECT_EQ(testing::read_file(folder / "divided"), testing::read_file(folder / "gathered"));
  }
  const auto nowhere = folder / "nowhere" / "w.safetensors";
  if (chief) {
    testing::expect_error<NotFound>([&] { model.save_weights(nowhere); }, "nowhere");
  } else {
    testing::expect_error<Unavailable>([&] { model.save_weights(nowhere); }, "save_weights failed on worker 0");
  }
}

}  // namespace cohort::equivalence
