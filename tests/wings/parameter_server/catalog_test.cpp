#include "wings/parameter_server/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/error.h"
#include "cohort/more_update_rules.h"
#include "tests/support/errors.h"

namespace cohort::catalog_test {
namespace {

using testing::expect_error;
using ::testing::HasSubstr;

std::vector<int64_t> rows_of(const Catalog& catalog, std::size_t variable) {
  std::vector<int64_t> rows;
  const auto [first, last] = catalog.shards_of(variable);
  for (std::size_t i = first; i < last; ++i) {
    const auto& shape = catalog.shards()[i].spec.shape;
    rows.push_back(shape.empty() ? 1 : shape.front());
  }
  return rows;
}

TEST(Catalog, PartsGoRoundRobinToTheServers) {
  Catalog catalog(2, FixedShardsPartitioner(3));
  catalog.declare({.name = "a", .shape = {10, 2}, .by_rows = true});
  catalog.declare({.name = "b", .shape = {}});
  catalog.declare({.name = "c", .shape = {4}});
  EXPECT_EQ(rows_of(catalog, 0), (std::vector<int64_t>{4, 3, 3}));
  EXPECT_EQ(rows_of(catalog, 1), (std::vector<int64_t>{1}));
  EXPECT_EQ(rows_of(catalog, 2), (std::vector<int64_t>{2, 1, 1}));
  std::vector<int> homes;
  for (const ShardInfo& shard : catalog.shards()) homes.push_back(shard.home);
  EXPECT_EQ(homes, (std::vector<int>{0, 1, 0, 1, 0, 1, 0}));
  EXPECT_EQ(catalog.shards_at(0), (std::vector<std::size_t>{0, 2, 4, 6}));
  EXPECT_EQ(catalog.shards()[2].spec.name, "a/part_2");
  EXPECT_EQ(catalog.shards()[2].first_row, 7);
  EXPECT_EQ(catalog.shards()[3].spec.name, "b");
}

TEST(Catalog, WhatMovesWholeIsCutIntoBlocksOnOneServer) {
  Catalog catalog(3);
  const int64_t row = 1024;  // 4 KiB
  catalog.declare({.name = "dense", .shape = {2500, row}, .optimizer = Adam()});
  catalog.declare({.name = "table", .shape = {2500, row}, .optimizer = Adam(), .by_rows = true});
  catalog.declare({.name = "normed", .shape = {2500, row}, .optimizer = LAMB()});
  catalog.declare({.name = "empty", .shape = {0, row}});
  catalog.declare({.name = "long row", .shape = {2, 2 << 20}});
  EXPECT_EQ(rows_of(catalog, 0), (std::vector<int64_t>{1024, 1024, 452}));
  EXPECT_EQ(rows_of(catalog, 1), (std::vector<int64_t>{2500}));
  EXPECT_EQ(rows_of(catalog, 2), (std::vector<int64_t>{2500})) << "the optimizer needs its norm";
  EXPECT_EQ(rows_of(catalog, 3), (std::vector<int64_t>{0}));
  EXPECT_EQ(rows_of(catalog, 4), (std::vector<int64_t>{1, 1}));
  for (const ShardInfo& shard : catalog.shards()) EXPECT_EQ(shard.home, static_cast<int>(shard.variable) % 3);
}

TEST(Catalog, WhatCannotBeIsRefused) {
  expect_error<InvalidArgument>([] { Catalog(0); }, "there are 0 servers");
  Catalog catalog(2, FixedShardsPartitioner(2));
  catalog.declare({.name = "a", .shape = {3}});
  expect_error<InvalidArgument>([&] { catalog.declare({.name = "a", .shape = {}}); }, "two variables of the name a");
  expect_error<InvalidArgument>([&] { catalog.declare({.name = "l", .shape = {3}, .optimizer = LAMB()}); },
                                "l would be cut into 2 parts, and LAMB needs the whole");
}

std::string description(const Optimizer& optimizer, std::vector<int64_t> shape = {3, 4}, int servers = 2) {
  Catalog catalog(servers);
  catalog.declare({.name = "w", .shape = std::move(shape), .optimizer = optimizer});
  return catalog.description();
}

TEST(Catalog, DescriptionsTellProgramsApart) {
  const std::string same = description(Adam({.learning_rate = 0.1}));
  EXPECT_EQ(same, description(Adam({.learning_rate = 0.1})));
  for (const std::string& other :
       {description(Adam({.learning_rate = 0.2})), description(Adam({.learning_rate = 0.1, .beta_2 = 0.99})),
        description(Adam({.learning_rate = 0.1, .epsilon = 1e-8})),
        description(Adam({.learning_rate = 0.1, .weight_decay = 0.1})), description(SGD({.learning_rate = 0.1})),
        description(LAMB({.learning_rate = 0.1})), description(Adam({.learning_rate = 0.1}), {3, 5}),
        description(Adam({.learning_rate = 0.1, .gradient = {.clipvalue = 1.0}})),
        description(Adam({.learning_rate = CosineDecay({.decay_steps = 50})})),
        description(Adam({.learning_rate = 0.1}), {3, 4}, 3)}) {
    EXPECT_NE(same, other);
    EXPECT_NE(difference(same, other), "nothing");
  }
  EXPECT_THAT(difference(same, description(Adam({.learning_rate = 0.1}), {3, 5})), HasSubstr("\"w Float[3, 4] in 0:0"));
  EXPECT_EQ(difference("a\nb\n", "a\n"), "\"b\" here, \"nothing more\" there");
  EXPECT_EQ(difference("a\n", "a\n"), "nothing");
}

}  // namespace
}  // namespace cohort::catalog_test
