// The ready-made layouts of the zoo's transformers: a mesh learns what one device does, also from the command line.
#include "cohort/models/layouts.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "tests/support/errors.h"

namespace cohort::layouts_test {
namespace {

using models::BertOptions;
using models::DecoderOptions;
using models::VisionTransformerOptions;
using ::testing::HasSubstr;

constexpr int64_t kRows = 4 * 6 + 1;  // five steps a pass; the last one leaves a share empty
constexpr double kClose = 1e-9;

struct Net {
  std::string name;
  std::function<std::shared_ptr<LayerModule>()> make;
  LayoutMap layout;
  Dataset data;
  bool drops = false;
};

DecoderOptions small_decoder() {
  return {.vocab_size = 11,
          .hidden_size = 16,
          .intermediate_size = 12,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .initializer_range = 0.3};
}

VisionTransformerOptions small_vit() {
  return {.image_size = 4,
          .patch_size = 2,
          .num_layers = 2,
          .num_heads = 2,
          .hidden_dim = 8,
          .mlp_dim = 12,
          .num_classes = 3,
          .in_channels = 1};
}

Net decoder_net(const std::string& name, const DecoderOptions& options) {
  torch::manual_seed(7);
  const torch::Tensor x = torch::randint(11, {kRows, 5}, torch::kLong);
  return {name, [options] { return models::decoder(options); }, layouts::transformer(options),
          Dataset::from_tensor_slices(x, torch::randint(11, {kRows, 5}, torch::kLong)).batch(6), options.dropout > 0.0};
}

// The embeddings, and the head if it is another matrix, are cut by words.
Net vocabulary_net(bool tied) {
  DecoderOptions options = small_decoder();
  options.vocab_size = 12;
  options.tie_word_embeddings = tied;
  options.remat = !tied;
  Net net = decoder_net(tied ? "tied vocabulary" : "vocabulary", options);
  net.layout = layouts::transformer(options, "model", /*cuts_vocabulary=*/true);
  return net;
}

Net vit_net(const std::string& name, const VisionTransformerOptions& options) {
  torch::manual_seed(7);
  const torch::Tensor x = torch::randn({kRows, 1, 4, 4}, torch::kDouble);
  return {name, [options] { return models::vision_transformer(options); }, layouts::transformer(options),
          Dataset::from_tensor_slices(x, torch::randint(3, {kRows}, torch::kLong)).batch(6), options.dropout > 0.0};
}

std::vector<Net> nets() {
  DecoderOptions adapted = small_decoder(), dropping = small_decoder();
  adapted.lora = {.rank = 2, .target_modules = {"q_proj", "o_proj", "up_proj", "down_proj"}};
  dropping.lora = adapted.lora;
  dropping.lora.dropout = dropping.dropout = 0.2;
  DecoderOptions biased = small_decoder();  // with heads of another size than hidden_size / num_heads
  biased.attention_bias = biased.mlp_bias = true;
  biased.head_dim = 6;
  VisionTransformerOptions dropping_vit = small_vit();
  dropping_vit.dropout = dropping_vit.attention_dropout = dropping_vit.stochastic_depth_prob = 0.2;
  return {decoder_net("decoder", small_decoder()),
          decoder_net("with biases", biased),
          decoder_net("with adapters", adapted),
          decoder_net("with dropout", dropping),
          vit_net("vision transformer", small_vit()),
          vit_net("vision transformer with dropout", dropping_vit),
          vocabulary_net(true),
          vocabulary_net(false)};
}

void expect_same(const NamedTensors& got, const NamedTensors& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_LT((got[i].second - wanted[i].second).abs().max().item<double>(), kClose) << got[i].first;
  }
}

NamedTensors trained(const Strategy& strategy, const Net& net) {
  const auto scope = strategy.scope();
  Model model([&] {
    auto made = net.make();
    made->to(torch::kDouble);
    return made;
  });
  torch::manual_seed(3);
  NamedTensors weights = model.weights();
  for (auto& [name, value] : weights) value = torch::randn(value.sizes(), torch::kDouble) * 0.3;
  model.set_weights(weights);
  model.compile(
      {.optimizer = Adam({.learning_rate = 0.01}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  strategy.set_seed(5);
  const History history = model.fit(net.data, {.epochs = 4, .verbose = Verbose::kSilent});
  NamedTensors result = model.weights();
  result.emplace_back("losses", torch::tensor(history["loss"], torch::kDouble));
  return result;
}

TEST(Layouts, TransformersLearnAsWithoutThem) {
  for (const Net& net : nets()) {
    // Replicas draw numbers of their own, so that two of them are what a mesh with two shares is like.
    const NamedTensors wanted = net.drops ? trained(MirroredStrategy({.devices = cpu_devices(2)}), net)
                                          : trained(OneDeviceStrategy("/CPU:0"), net);
    for (const bool in_positions : {false, true}) {
      const int batch = net.drops || in_positions ? 2 : 1;
      SCOPED_TRACE(c10::str(net.name, ", batch ", batch, in_positions ? ", positions in parts" : ""));
      const MeshStrategy mesh(DeviceMesh({batch, 2}, {"batch", "model"}, cpu_devices(2 * batch)),
                              {.layout = net.layout, .sequence_parallel = in_positions});
      expect_same(trained(mesh, net), wanted);
    }
  }
}

BertOptions small_bert() {
  return {.vocab_size = 12,
          .hidden_size = 8,
          .num_layers = 2,
          .num_heads = 2,
          .intermediate_size = 12,
          .dropout = 0.0,
          .attention_dropout = 0.0,
          .max_positions = 6,
          .initializer_range = 0.3,
          .mlm_initializer_range = 0.3};
}

// BERT, with the gradients of a loop of one's own.
NamedTensors bert_after_steps(const Strategy& strategy) {
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  const auto net = strategy.mirror([] {
    auto made = models::bert(small_bert());
    made->to(torch::kDouble);
    return made;
  });
  const MirroredOptimizer adam = strategy.optimizer(net, Adam({.learning_rate = 0.01}));
  torch::manual_seed(6);
  for (int step = 0; step < 20; ++step) {
    const int64_t rows = step % 5 == 4 ? 1 : 6;
    const NamedTensors all = {{"input_word_ids", torch::randint(11, {rows, 5}, torch::kLong)},
                              {"input_mask", torch::ones({rows, 5}, torch::kLong)},
                              {"input_type_ids", torch::randint(2, {rows, 5}, torch::kLong)},
                              {"masked_lm_positions", torch::randint(5, {rows, 2}, torch::kLong)}};
    const auto shares = strategy.values_from_function([&](const ValueContext& place) {
      const int64_t size = (rows + place.num_replicas_in_sync - 1) / place.num_replicas_in_sync;
      const int64_t begin = std::min(rows, place.replica_id_in_sync_group * size);
      Example share;
      for (const auto& [name, x] : all) share.inputs.emplace_back(name, x.slice(0, begin, begin + size));
      return share;
    });
    strategy.run(
        [&](Replica& replica, const Example& share) {
          torch::Tensor loss;
          for (const auto& [name, output] : net[replica]->forward(share.inputs)) {
            const torch::Tensor each = output.log_softmax(-1).flatten(1).square().mean(1);
            loss = loss.defined() ? loss + each : each;
          }
          adam[replica].minimize(replica.global_mean(loss));
        },
        shares);
  }
  return net.state();
}

TEST(Layouts, BertLearnsWithItsPositionsAndWordsInParts) {
  const NamedTensors wanted = bert_after_steps(OneDeviceStrategy("/CPU:0"));
  for (const auto& [in_positions, in_words] :
       {std::pair(false, false), std::pair(true, false), std::pair(true, true)}) {
    SCOPED_TRACE(c10::str("positions ", in_positions, ", words ", in_words));
    expect_same(bert_after_steps(MeshStrategy(DeviceMesh({2, 2}, {"batch", "model"}, cpu_devices(4)),
                                              {.layout = layouts::transformer(small_bert(), "model", in_words),
                                               .sequence_parallel = in_positions})),
                wanted);
  }
}

TEST(Layouts, PositionsThatCannotBeInPartsAreNamed) {
  EXPECT_THAT(testing::error_of<InvalidArgument>(
                  [] { MeshStrategy(DeviceMesh({2}, {"batch"}, cpu_devices(2)), {.sequence_parallel = true}); }),
              HasSubstr("sequence_parallel came with 0 axes that divide parameters in the mesh batch 2"));
  EXPECT_THAT(testing::error_of<InvalidArgument>([] {
                const MeshStrategy mesh(DeviceMesh({2}, {"model"}, cpu_devices(2)),
                                        {.layout = {{"dense.weight", {"", "model"}}}, .sequence_parallel = true});
                const auto scope = mesh.scope();
                Sequential({Dense(4)}).build({6});
              }),
              HasSubstr("sequence_parallel: Sequential has no positions that it divides; decoder(), bert() and"));
}

TEST(Layouts, ReplicasHaveTheirHeadsOfPackedMatrices) {
  const Net net = vit_net("vision transformer", small_vit());
  const MeshStrategy mesh(DeviceMesh({2}, {"model"}, cpu_devices(2)), {.layout = net.layout});
  const auto scope = mesh.scope();
  const Model model(net.make);
  const NamedTensors weights = model.weights();
  const auto is_packed = [](const auto& item) { return item.first.ends_with("layer_0.self_attention.in_proj_weight"); };
  const torch::Tensor whole = std::find_if(weights.begin(), weights.end(), is_packed)->second;
  for (const int r : {0, 1}) {
    const torch::Tensor part = model.module()
                                   .copies()[static_cast<std::size_t>(r)]
                                   ->named_parameters()["encoder.layers.encoder_layer_0.self_attention.in_proj_weight"];
    EXPECT_TRUE(part.equal(whole.view({3, 2, 4, 8}).select(1, r).reshape({12, 8})));
  }
}

TEST(Layouts, SizesThatDoNotDivideAreNamed) {
  const auto error = [](const Net& net, int model, const LayoutMap& layout) {
    return testing::error_of<InvalidArgument>([&] {
      const MeshStrategy mesh(DeviceMesh({model}, {"model"}, cpu_devices(model)), {.layout = layout});
      const auto scope = mesh.scope();
      Model(net.make).weights();
    });
  };
  const Net decoder = decoder_net("decoder", small_decoder());
  EXPECT_THAT(
      error(decoder, 4, decoder.layout),
      HasSubstr("num_kv_heads is 2, which 4 replicas along \"model\" do not divide; sizes of the axis that would: "
                "1, 2"));
  EXPECT_THAT(error(decoder, 2, {{"q_proj.weight", {"model", ""}}}),
              HasSubstr("decoder: the layout cuts q_proj.weight {\"model\", \"\"}, wanted k_proj.weight"));
  EXPECT_THAT(error(decoder, 2, layouts::transformer(small_decoder(), "model", /*cuts_vocabulary=*/true)),
              HasSubstr("dimension 0 of model.embed_tokens.weight has 11 elements, which 2 replicas"));
  const Net vit = vit_net("vision transformer", small_vit());
  EXPECT_THAT(error(vit, 3, vit.layout), HasSubstr("has 3 times 8 elements, which 3 replicas along \"model\" do not"));
}

// Products of matrices between places, of which a third are much larger than the others.
class Uneven final : public LayerModule {
 public:
  Uneven() {
    for (int i = 0; i < 6; ++i) {
      layers_.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(i == 5 ? 400 : 10, i == 4 ? 400 : 10)));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    torch::Tensor y = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (i > 0) y = stage_place(std::vector{y}, std::to_string(i)).front();
      y = layers_[i]->forward(y);
    }
    return y;
  }

 private:
  std::vector<torch::nn::Linear> layers_;
};

TEST(Layouts, PipelinesCutModelsByTheirProducts) {
  Uneven uneven;
  const torch::Tensor x = torch::zeros({2, 10});
  EXPECT_EQ(layouts::pipeline_cut(uneven, x, 1), std::vector<std::string>());
  EXPECT_EQ(layouts::pipeline_cut(uneven, x, 2), std::vector<std::string>{"5"});
  EXPECT_EQ(layouts::pipeline_cut(uneven, x, 6), (std::vector<std::string>{"1", "2", "3", "4", "5"}));
  EXPECT_TRUE(uneven.is_training());
  EXPECT_THAT(testing::error_of<InvalidArgument>([&] { layouts::pipeline_cut(uneven, x, 7); }),
              HasSubstr("comes through 5 places where a chunk may begin (1, 2, 3, 4, 5), so that it has no 7 chunks"));
  const auto cut = [](const std::shared_ptr<LayerModule>& model, int chunks) {
    return c10::Join(" ", layouts::pipeline_cut(*model, torch::zeros({1, 3, 64, 64}), chunks));
  };
  EXPECT_EQ(cut(models::resnet50(), 2), "layer3.0");
  EXPECT_EQ(cut(models::resnet_cifar(3), 3), "layer2.0 layer3.0");
  EXPECT_EQ(cut(models::unet({.filters = 8}), 4), "down3 up2 up4");
  EXPECT_EQ(cut(models::efficientnet(0), 2), "features.4.2");
}

}  // namespace
}  // namespace cohort::layouts_test
