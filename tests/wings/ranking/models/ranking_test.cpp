// DLRM: its arithmetic, clicks from files and drawn ones, and a training that does not depend on where the tables are.
#include "cohort/models/ranking.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>

#include "cohort/cohort.h"
#include "tests/equivalence/recommender_runs.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/server_cluster.h"
#include "wings/ranking/data/clicks/clicks.h"

namespace cohort::ranking_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::ServerCluster;
using cohort::testing::ServerClusterOptions;
using cohort::testing::TemporaryFolder;
using cohort::testing::write_file;
using namespace equivalence::recommender_runs;

TEST(Dlrm, MultipliesAllPairsOfVectors) {
  const auto module = fixed(small());
  const Example clicks = some_clicks(6);
  const auto weights = module->named_parameters();
  const auto dense = [&](const torch::Tensor& x, const std::string& name) {
    return torch::linear(x, weights[name + ".weight"], weights[name + ".bias"]);
  };
  std::vector<torch::Tensor> vectors = {
      torch::relu(dense(torch::relu(dense(clicks.inputs[0].second, "bot_l.0")), "bot_l.2"))};
  for (int64_t i = 0; i < 3; ++i) {
    vectors.push_back(weights[c10::str("emb_l.", i, ".weight")].index({clicks.inputs[1].second.select(1, i)}));
  }
  std::vector<torch::Tensor> columns = {vectors[0]};
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < i; ++j) columns.push_back((vectors[i] * vectors[j]).sum(1, /*keepdim=*/true));
  }
  const torch::Tensor wanted = dense(torch::relu(dense(torch::cat(columns, 1), "top_l.0")), "top_l.2").squeeze(1);
  const NamedTensors got = module->forward(clicks.inputs);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_LT((got[0].second - wanted).abs().max().item<double>(), 1e-12);
  EXPECT_EQ(module->forward(clicks.rows(0, 0).inputs)[0].second.sizes(), (std::vector<int64_t>{0}));
}

TEST(Dlrm, RefusesWhatDoesNotFit) {
  const auto expect = [](const std::function<void(DlrmOptions&)>& change, const std::string& text) {
    DlrmOptions options = small();
    change(options);
    expect_error<InvalidArgument>([&] { models::dlrm(options); }, text);
  };
  expect([](DlrmOptions& options) { options.vocab_sizes = {}; }, "vocab_sizes is empty");
  expect([](DlrmOptions& options) { options.bottom_mlp = {3}; }, "bottom_mlp ends with 3, wanted embedding_dim, 4");
  expect([](DlrmOptions& options) { options.top_mlp = {2}; }, "top_mlp ends with 2, wanted 1");
  expect_error<InvalidArgument>([] { models::dlrm(small())->forward({}); }, "the inputs have no dense_features");
}

const Optimizer& adagrad() {
  static const Optimizer rule = Adagrad({.learning_rate = 0.1});
  return rule;
}

TEST(Dlrm, LearnsTheSameOnReplicas) {
  const Learned wanted = under(OneDeviceStrategy("/CPU:0"), adagrad());
  EXPECT_LT(wanted.losses.back(), wanted.losses.front());
  expect_like(under(MirroredStrategy({.devices = cpu_devices(2)}), adagrad()), wanted);
}

MeshStrategy mesh_of(int batch, int model, const LayoutMap& layout) {
  return MeshStrategy(DeviceMesh({batch, model}, {"batch", "model"}, cpu_devices(batch * model)), {.layout = layout});
}

TEST(Dlrm, LearnsTheSameOnAMesh) {
  const auto layout = [](bool cuts_vocabulary, bool cuts_mlps) {
    return layout_of({.cuts_vocabulary = cuts_vocabulary, .cuts_mlps = cuts_mlps});
  };
  const Learned wanted = in_parts(OneDeviceStrategy("/CPU:0"));
  EXPECT_LT(wanted.losses.back(), wanted.losses.front());
  for (const MeshStrategy& mesh :
       {mesh_of(2, 2, layout(false, false)), mesh_of(1, 3, layout(true, false)), mesh_of(1, 2, layout(false, true)),
        mesh_of(2, 3, layout(true, true)), mesh_of(1, 2, {{"emb_l\\.1\\.weight", {"model", ""}}})}) {
    expect_like(in_parts(mesh), wanted);
  }
}

TEST(Dlrm, LayoutsThatDoNotFitAreNamed) {
  const auto expect = [](const DlrmOptions& options, const LayoutMap& layout, const std::string& text) {
    expect_error<InvalidArgument>(
        [&] {
          const MeshStrategy mesh = mesh_of(1, 2, layout);
          const auto scope = mesh.scope();
          Model([options] { return models::dlrm(options); }).weights();
        },
        text);
  };
  expect(small(), layouts::recommender(small(), "model", {.cuts_vocabulary = true}),
         "dimension 0 of emb_l.0.weight has 7 elements, which 2 replicas along \"model\" do not divide; sizes of the "
         "axis that would: 1, 7");
  expect(divisible(), {{"emb_l\\.0\\.weight", {"model", ""}}, {"emb_l\\.1\\.weight", {"", "model"}}},
         "dlrm: the layout cuts emb_l.0.weight {\"model\", \"\"}, emb_l.1.weight {\"\", \"model\"}, wanted");
  expect(divisible(), {{"bot_l\\.0\\.weight", {"model", ""}}}, "wanted 0.bias {\"model\"}, 0.weight {\"model\", \"\"}");
  DlrmOptions single = divisible();
  single.bottom_mlp = {6};
  expect(single, {{"bot_l\\.0\\.weight", {"model", ""}}}, "cuts 0.weight of a single dense layer, wanted two or more");
}

bool tables_are_gone(Model& model) {
  bool gone = true;
  for (const auto& item : model.module().copies().front()->named_parameters()) {
    if (item.key().starts_with("emb_l")) gone = gone && item.value().storage().nbytes() == 0;
  }
  return gone;
}

// The workers look up rows, and the servers update them; what a table's rows come to is what one device makes of them,
// as long as a row without examples stays as it is.
TEST(Dlrm, LearnsTheSameWithItsTablesOnServers) {
  for (const bool together : {false, true}) {
    SCOPED_TRACE(together);
    const Learned wanted = under(OneDeviceStrategy("/CPU:0"), adagrad());
    ServerClusterOptions cluster{.servers = 2, .workers = together ? 2 : 1};
    cluster.strategy.variable_partitioner = FixedShardsPartitioner(2);
    if (together) cluster.strategy.consistency.kind = Consistency::Kind::kSynchronous;
    Learned got;
    std::atomic<int> without_tables = 0;
    ServerCluster(cluster).run([&](const ParameterServerOptions& own) {
      const ParameterServerStrategy strategy(own);
      const auto scope = strategy.scope();
      Model model = compiled(adagrad());
      if (strategy.serve()) {
        const bool gone = tables_are_gone(model);
        if (strategy.task().type == "ps") EXPECT_TRUE(gone) << "of server " << strategy.task().index;
        if (strategy.task().type == "worker") without_tables += gone ? 1 : 0;
        return;
      }
      got = fitted(model);
    });
    expect_like(got, wanted);
    EXPECT_GE(without_tables, 1) << "a worker that had no work may still have them";
  }
}

// What the gradients are multiplied with holds for those of rows, too.
TEST(Dlrm, RowsOnServersLearnAsScaledGradientsDo) {
  const Optimizer rule = SGD({.learning_rate = 0.2, .gradient = {.loss_scale_factor = 64.0}});
  const Learned wanted = under(OneDeviceStrategy("/CPU:0"), rule);
  std::vector<Learned> got(2);
  for (Learned& each : got) {
    ServerClusterOptions cluster{.servers = 2, .workers = 1};
    ServerCluster(cluster).run([&](ParameterServerOptions own) {
      own.devices = cpu_devices(4);
      const ParameterServerStrategy strategy(own);
      const auto scope = strategy.scope();
      Model model = compiled(rule);
      if (!strategy.serve()) each = fitted(model);
    });
    expect_like(each, wanted);
  }
  for (std::size_t i = 0; i < wanted.weights.size(); ++i) {
    EXPECT_TRUE(got[0].weights[i].second.equal(got[1].weights[i].second)) << wanted.weights[i].first;
  }
}

TEST(Dlrm, RowsOnServersCannotBeAccumulated) {
  ServerCluster({.servers = 1, .workers = 1}).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    const auto scope = strategy.scope();
    const Optimizer rule = SGD({.learning_rate = 0.2, .gradient = {.gradient_accumulation_steps = 2}});
    const auto net = strategy.mirror([] { return models::dlrm(small()); });
    expect_error<Unimplemented>([&] { strategy.optimizer(net, rule); },
                                "gradient_accumulation_steps is set and tables are on parameter servers");
  });
}

RankingTask small_task() {
  RankingTask task;
  task.train_data.global_batch_size = 4;
  task.validation_data.global_batch_size = 3;
  return task;
}

std::string line_of(const std::string& label, const std::string& number, const std::string& category) {
  std::string line = label;
  for (int i = 0; i < 13; ++i) line += "\t" + number;
  for (int i = 0; i < 26; ++i) line += "\t" + category;
  return line + "\n";
}

TEST(RankingTask, ReadsCriteosFormat) {
  const TemporaryFolder folder;
  std::string lines = line_of("1", "3", "ff") + line_of("0", "", "") + line_of("1", "-2", "80000000");
  lines += lines + lines + line_of("0", "7", "1");
  write_file(folder / "clicks", lines);
  RankingTask task = small_task();
  task.train_data.input_path = (folder / "clicks").string();
  const TaskData data = task.build_inputs({}, /*training=*/true);
  EXPECT_EQ(data.steps_per_epoch, 2);  // 9 of 10 lines
  task.train_data.held_out = 0.0;
  task.train_data.shuffle_buffer_size = 1;
  const Example batch = task.build_inputs({}, /*training=*/true).train->iterator().next().value();
  const Example zeros = task.example_batch();
  EXPECT_EQ(batch.y.sizes(), zeros.y.sizes());
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(batch.inputs[i].first, zeros.inputs[i].first);
    EXPECT_EQ(batch.inputs[i].second.sizes(), zeros.inputs[i].second.sizes());
    EXPECT_EQ(batch.inputs[i].second.scalar_type(), zeros.inputs[i].second.scalar_type());
  }
  EXPECT_TRUE(batch.y.equal(torch::tensor({1.0F, 0.0F, 1.0F, 1.0F})));
  EXPECT_TRUE(torch::allclose(batch.inputs[0].second.select(1, 12), torch::tensor({4.0F, 1.0F, 1.0F, 4.0F}).log()));
  const int64_t large = 1 + 0x80000000LL % 200;
  EXPECT_TRUE(batch.inputs[1].second.select(1, 25).equal(torch::tensor({int64_t{56}, int64_t{0}, large, int64_t{56}})));
}

TEST(RankingTask, NamesTheLineOfWhatIsNoClick) {
  const TemporaryFolder folder;
  const auto expect = [&](const std::string& line, const std::string& text) {
    write_file(folder / "clicks", line_of("1", "3", "ff") + line);
    expect_error<DataLoss>([&] { datasets::criteo(folder / "clicks"); }, text);
  };
  expect(line_of("2", "3", "ff"), "clicks, line 2 has another label, or none, wanted a label of 0 or 1");
  expect(line_of("1", "x", "ff"), "line 2 has \"x\" in field 2, wanted a whole number");
  expect(std::string(100, 'y') + "\n",
         "line 2 has \"" + std::string(40, 'y') + "\" in field 1, wanted a label of 0 or 1");
  expect(line_of("1", "3", "123456789"), "line 2 has \"123456789\" in field 15, wanted a hexadecimal number");
  expect("1\t3\n", "line 2 has 2 fields, wanted 40 fields");
  expect(line_of("1", "3", "ff").substr(0, 90) + "\t\t\t\t\t\t\t\t\t\t\t\t\t\n", "more fields, wanted 40");
  expect_error<NotFound>([&] { datasets::criteo(folder / "none"); }, "there is no such file or folder of clicks");
  write_file(folder / "clicks", "");
  expect_error<NotFound>([&] { datasets::criteo(folder / "clicks"); }, "has no clicks");
}

TEST(RankingTask, RefusesWhatDoesNotFit) {
  RankingTask task = small_task();
  expect_error<InvalidArgument>([&] { task.build_inputs({}, true); }, "there are no clicks: --data_dir");
  task.model.vocab_sizes = std::vector<int64_t>(26, 1);
  expect_error<InvalidArgument>([&] { task.build_inputs({}, true); }, "task.model.vocab_sizes has 1, wanted 2 or more");
  task.model.vocab_sizes = std::vector<int64_t>{2};
  expect_error<InvalidArgument>([&] { task.build_inputs({}, true); }, "task.model.vocab_sizes has 1 sizes, but");
}

TEST(DrawnClicks, HaveAKnownRule) {
  const datasets::Clicks clicks = datasets::draw_clicks(20'000, 1, 1);
  MetricState state = AUC().make_state();
  AUC().update(state, clicks.labels, clicks.chances);
  EXPECT_NEAR(AUC().result(state), 0.898, 0.002);  // as datasets.h says
  const datasets::Clicks again = datasets::draw_clicks(20'000, 1, 1);
  EXPECT_TRUE(again.labels.equal(clicks.labels) && again.categories.equal(clicks.categories));
  EXPECT_FALSE(datasets::draw_clicks(20'000, 2, 1).labels.equal(clicks.labels));
  EXPECT_FALSE(datasets::draw_clicks(20'000, 1, 0).labels.equal(clicks.labels));
}

// What is learned of the clicks of one seed holds for those of another.
TEST(DrawnClicks, HaveOneRuleForAllSeeds) {
  const auto slopes = [](uint64_t seed) {
    const datasets::Clicks clicks = datasets::draw_clicks(20'000, seed, 0);
    const torch::Tensor sizes = clicks.dense.log1p();
    return (sizes - sizes.mean(0)).t().mv(clicks.chances.logit(1e-6));
  };
  EXPECT_GT(torch::cosine_similarity(slopes(1), slopes(2), 0).item<double>(), 0.9);
}

}  // namespace
}  // namespace cohort::ranking_test
