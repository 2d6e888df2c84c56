// BERT: its arithmetic against PyTorch's own encoder, its examples, and a training that does not depend on the
// strategy.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "cohort/cohort.h"
#include "models/tasks/initial_weights.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "wings/text/models/pretraining_data.h"

namespace cohort::bert_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TemporaryFolder;
using cohort::testing::write_file;
using models::BertOptions;

constexpr double kClose = 1e-9;

BertOptions small() {
  return {.vocab_size = kByteTokens,
          .hidden_size = 8,
          .num_layers = 2,
          .num_heads = 2,
          .intermediate_size = 12,
          .dropout = 0.0,
          .attention_dropout = 0.0,
          .max_positions = 24,
          .norm_epsilon = 1e-5,
          .initializer_range = 0.4};
}

MaskingPlan small_masking() {
  return {.seq_length = 19, .max_predictions = 4, .rate = 0.2, .short_prob = 0.5, .next_sentence = true};
}

at::Generator generator_of(uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return generator;
}

torch::Tensor some_texts(int64_t examples, const MaskingPlan& masking) {
  return torch::randint(97, 123, {examples, masking.text_length()}, generator_of(5), torch::kByte);
}

const torch::Tensor& named(const NamedTensors& list, const std::string& name) {
  return std::find_if(list.begin(), list.end(), [&](const auto& each) { return each.first == name; })->second;
}

// PyTorch's encoder layer with the weights of BERT's block, which has its norms after what is added, too.
torch::nn::TransformerEncoderLayer layer_like(const BertOptions& options, const NamedTensors& weights, int64_t number) {
  torch::nn::TransformerEncoderLayer layer(
      torch::nn::TransformerEncoderLayerOptions(options.hidden_size, options.num_heads)
          .dim_feedforward(options.intermediate_size)
          .dropout(0.0)
          .activation(torch::kGELU));
  layer->to(torch::kDouble);
  const std::string block = c10::str("bert.encoder.layer.", number, ".");
  const torch::NoGradGuard no_grad;
  for (const std::string kind : {"weight", "bias"}) {
    const auto own = [&](const std::string& name) { return named(weights, c10::str(block, name, ".", kind)); };
    auto parameters = layer->named_parameters();
    parameters["self_attn.in_proj_" + kind].copy_(
        torch::cat({own("attention.self.query"), own("attention.self.key"), own("attention.self.value")}));
    for (const auto& [theirs, ours] : {std::pair("self_attn.out_proj.", "attention.output.dense"),
                                       {"norm1.", "attention.output.LayerNorm"},
                                       {"linear1.", "intermediate.dense"},
                                       {"linear2.", "output.dense"},
                                       {"norm2.", "output.LayerNorm"}}) {
      parameters[theirs + kind].copy_(own(ours));
    }
  }
  return layer;
}

std::shared_ptr<models::NamedModule> drawn(const BertOptions& options) {
  torch::manual_seed(3);
  auto made = models::bert(options);
  made->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& each : made->parameters()) each.normal_(0.0, 0.5);
  return made;
}

TEST(Bert, IsPyTorchsEncoderWithHeads) {
  const BertOptions options = small();
  const auto module = drawn(options);
  NamedTensors weights;
  for (const auto& item : module->named_parameters()) weights.emplace_back(item.key(), item.value());
  const Example batch = pretraining_batch(some_texts(5, small_masking()), small_masking(), generator_of(1));
  const torch::Tensor seen = named(batch.inputs, "input_mask");
  ASSERT_TRUE(seen.eq(0).any().item<bool>());

  const auto row = [&](const char* name, const torch::Tensor& indices) {
    return named(weights, c10::str("bert.embeddings.", name, "_embeddings.weight")).index({indices});
  };
  const auto norm = [&](const torch::Tensor& x, const std::string& name) {
    return torch::layer_norm(x, {8}, named(weights, name + ".weight"), named(weights, name + ".bias"), 1e-5);
  };
  const auto dense = [&](const torch::Tensor& x, const std::string& name) {
    return torch::linear(x, named(weights, name + ".weight"), named(weights, name + ".bias"));
  };
  torch::Tensor y = norm(row("word", named(batch.inputs, "input_word_ids")) +
                             row("token_type", named(batch.inputs, "input_type_ids")) +
                             row("position", torch::arange(19, torch::kLong)),
                         "bert.embeddings.LayerNorm")
                        .transpose(0, 1);
  for (const int64_t number : {0, 1}) y = layer_like(options, weights, number)->forward(y, {}, seen.eq(0));
  y = y.transpose(0, 1);
  const torch::Tensor next = dense(torch::tanh(dense(y.select(1, 0), "bert.pooler.dense")), "cls.seq_relationship");
  const torch::Tensor places = named(batch.inputs, "masked_lm_positions").unsqueeze(2).expand({5, 4, 8});
  const torch::Tensor inner = norm(torch::gelu(dense(y.gather(1, places), "cls.predictions.transform.dense")),
                                   "cls.predictions.transform.LayerNorm");
  const torch::Tensor logits = torch::matmul(inner, named(weights, "bert.embeddings.word_embeddings.weight").t()) +
                               named(weights, "cls.predictions.bias");

  const NamedTensors got = module->forward(batch.inputs);
  EXPECT_LT((named(got, "mlm_logits") - logits).abs().max().item<double>(), kClose);
  EXPECT_LT((named(got, "next_sentence") - next).abs().max().item<double>(), kClose);
  // What is no word is not seen by the others.
  NamedTensors other = batch.inputs;
  other[0].second = torch::where(seen.eq(0), torch::full_like(seen, 7), other[0].second);
  EXPECT_TRUE(named(module->forward(other), "next_sentence").equal(named(got, "next_sentence")));
}

TEST(Bert, RefusesWhatDoesNotFit) {
  expect_error<InvalidArgument>([] { models::bert({.num_heads = 7}); }, "hidden_size is 768, wanted a multiple of");
  expect_error<InvalidArgument>([] { models::bert({.dropout = 1.0}); }, "a dropout is 1");
  const auto module = models::bert(small());
  expect_error<InvalidArgument>([&] { module->forward({}); }, "the inputs have no input_word_ids");
  const torch::Tensor tokens = torch::zeros({2, 25}, torch::kLong);
  expect_error<InvalidArgument>(
      [&] {
        module->forward({{"input_word_ids", tokens}, {"input_type_ids", tokens}, {"input_mask", tokens}});
      },
      "have 25 tokens, wanted at most 24");
  expect_error<InvalidArgument>(
      [&] {
        module->forward({{"input_word_ids", tokens.to(torch::kFloat)}});
      },
      "input_word_ids is Float");
  const torch::Tensor few = torch::zeros({2, 5}, torch::kLong);
  expect_error<InvalidArgument>(
      [&] {
        module->forward({{"input_word_ids", few},
                         {"input_type_ids", few},
                         {"input_mask", few},
                         {"masked_lm_positions", torch::tensor({{1}, {5}})}});
      },
      "masked_lm_positions are from 1 to 5, wanted 0 to 4");
  const MeshStrategy strategy(DeviceMesh({2}, {"model"}, cpu_devices(2)), {.layout = layouts::transformer(small())});
  const auto scope = strategy.scope();
  BertOptions soft = small();
  soft.activation = Activation::kSoftmax;
  expect_error<InvalidArgument>([&] { Model([&] { return models::bert(soft); }, "bert"); },
                                "the activation softmax needs the whole hidden layer, which the layout divides");
}

TEST(Pretraining, HidesAPartOfEachText) {
  const MaskingPlan masking{.seq_length = 103, .max_predictions = 12, .rate = 0.15, .short_prob = 0.2};
  const torch::Tensor texts = some_texts(400, masking);
  const Example batch = pretraining_batch(texts, masking, generator_of(2));
  const torch::Tensor words = named(batch.inputs, "input_word_ids"), seen = named(batch.inputs, "input_mask");
  const torch::Tensor types = named(batch.inputs, "input_type_ids"), hidden = named(batch.targets, "mlm_logits");
  const torch::Tensor counted = named(batch.masks, "mlm_logits"), other = named(batch.targets, "next_sentence");
  // 15% of 100 bytes would be 15.
  EXPECT_EQ(counted.sum(1).max().item<int64_t>(), 12);
  EXPECT_GE(counted.sum(1).min().item<int64_t>(), 1);
  const torch::Tensor places = named(batch.inputs, "masked_lm_positions");
  const torch::Tensor now = words.gather(1, places);
  const auto part = [&](const torch::Tensor& which) {
    return which.logical_and(counted).sum().item<double>() / counted.sum().item<double>();
  };
  EXPECT_NEAR(part(now.eq(kMask)), 0.8, 0.02);
  EXPECT_NEAR(part(now.eq(hidden)), 0.1, 0.02);
  EXPECT_NEAR(other.to(torch::kDouble).mean().item<double>(), 0.5, 0.08);
  EXPECT_TRUE(words.select(1, 0).eq(kClassify).all().item<bool>());
  EXPECT_TRUE(words.eq(kSeparate).sum(1).eq(2).all().item<bool>());
  EXPECT_TRUE(words.eq(kPad).equal(seen.eq(0)));
  EXPECT_NEAR(seen.sum(1).lt(103).to(torch::kDouble).mean().item<double>(), 0.2, 0.06);
  EXPECT_TRUE((types * seen).equal(types));
  // With the hidden tokens back in their places the examples are the texts.
  const torch::Tensor whole = words.scatter(1, torch::where(counted, places, torch::zeros_like(places)),
                                            torch::where(counted, hidden, torch::full_like(hidden, kClassify)));
  const torch::Tensor is_first = whole.lt(256).logical_and(types.eq(0));
  for (int64_t i = 0; i < 400; ++i) {
    const torch::Tensor first = whole[i].index({is_first[i]});
    EXPECT_TRUE(first.equal(texts[i].narrow(0, 0, first.size(0)).to(torch::kLong)));
    const torch::Tensor second = whole[i].index({whole[i].lt(256).logical_and(types[i].eq(1))});
    const torch::Tensor own = texts[i].narrow(0, first.size(0), second.size(0)).to(torch::kLong);
    if (second.size(0) <= 8) continue;  // may be the same by chance
    EXPECT_EQ(second.equal(own), other[i].item<int64_t>() == 0) << i;
  }
}

TEST(Pretraining, DrawsAnewInEachPassAndTheSameForValidation) {
  const MaskingPlan masking = small_masking();
  BertDataConfig data;
  data.global_batch_size = 6;
  data.seq_length = masking.seq_length;
  data.max_predictions_per_seq = 4;
  const Dataset texts = Dataset::from_tensor_slices(some_texts(9, masking));
  const auto words = [](const Dataset& batches, int64_t epoch) {
    return named(batches.iterator({.epoch = epoch}).next()->inputs, "input_word_ids");
  };
  const Dataset train = pretraining_batches(texts, data, 3, /*same_in_each_pass=*/false);
  EXPECT_TRUE(words(train, 0).equal(words(train, 0)));
  EXPECT_FALSE(words(train, 0).equal(words(train, 1)));
  const Dataset validation = pretraining_batches(texts, data, 3, /*same_in_each_pass=*/true);
  EXPECT_TRUE(words(validation, 0).equal(words(validation, 1)));
  EXPECT_FALSE(words(validation, 0).equal(words(pretraining_batches(texts, data, 4, true), 0)));
}

struct Trained {
  NamedTensors weights;
  std::vector<std::pair<std::string, double>> logs;
};

// Four steps of a pass, the last one of 3 examples, which leaves a share short.
Trained trained(const Strategy& strategy, bool next_sentence) {
  const auto scope = strategy.scope();
  BertOptions options = small();
  options.next_sentence = next_sentence;
  MaskingPlan masking = small_masking();
  masking.next_sentence = next_sentence;
  const torch::Tensor texts = some_texts(6 * 3 + 3, masking);
  const Dataset batches = Dataset::from_tensor_slices(texts).batch(6).map([masking](const Example& batch) {
    return pretraining_batch(batch.x, masking, generator_of(static_cast<uint64_t>(batch.x.sum().item<int64_t>())));
  });
  Model model([&] { return drawn(options); }, "bert");
  MaskedLanguageModelTask task;
  task.train_data.use_next_sentence_label = next_sentence;
  CompileOptions compile{.optimizer = Adam({.learning_rate = 0.01})};
  task.add_losses(compile);
  model.compile(compile);
  const History history = model.fit(batches, {.epochs = 4, .verbose = Verbose::kSilent});
  Trained result{.weights = model.weights(), .logs = {}};
  for (const std::string& name : history.names()) result.logs.emplace_back(name, history[name].back());
  for (const auto& [name, value] : model.evaluate(batches, {.verbose = Verbose::kSilent})) {
    result.logs.emplace_back(name, value);
  }
  return result;
}

TEST(Bert, LearnsTheSameUnderEveryStrategy) {
  for (const bool next_sentence : {true, false}) {
    SCOPED_TRACE(next_sentence);
    const Trained wanted = trained(OneDeviceStrategy("/CPU:0"), next_sentence);
    const std::map<std::string, double> logs(wanted.logs.begin(), wanted.logs.end());
    const auto has = [&](const std::string& name) { return logs.contains(name); };
    const auto value_of = [&](const std::string& name) { return logs.at(name); };
    EXPECT_TRUE(has("lm_example_loss") && has("masked_lm_accuracy"));
    if (!next_sentence) {
      EXPECT_EQ(value_of("lm_example_loss"), value_of("loss"));
    }
    EXPECT_EQ(has("next_sentence_loss") && has("next_sentence_accuracy"), next_sentence);
    std::vector<Strategy> strategies = {MirroredStrategy({.devices = cpu_devices(2)})};
    for (const int batch : {1, 2}) {
      strategies.push_back(MeshStrategy(DeviceMesh({batch, 2}, {"batch", "model"}, cpu_devices(2 * batch)),
                                        {.layout = layouts::transformer(small())}));
    }
    for (const Strategy& strategy : strategies) {
      const Trained got = trained(strategy, next_sentence);
      ASSERT_EQ(got.weights.size(), wanted.weights.size());
      for (std::size_t i = 0; i < got.weights.size(); ++i) {
        EXPECT_LT((got.weights[i].second - wanted.weights[i].second).abs().max().item<double>(), kClose)
            << got.weights[i].first;
      }
      ASSERT_EQ(got.logs.size(), wanted.logs.size());
      for (std::size_t i = 0; i < got.logs.size(); ++i) {
        EXPECT_NEAR(got.logs[i].second, wanted.logs[i].second, kClose) << got.logs[i].first;
      }
    }
  }
}

TEST(Bert, NamesLogsThatAreNotThere) {
  MaskedLanguageModelTask task;
  CompileOptions compile{.optimizer = Adam()};
  task.add_losses(compile);
  compile.log_names.emplace_back("loss_of_nothing", "something");
  Model model([] { return drawn(small()); }, "bert");
  expect_error<InvalidArgument>([&] { model.compile(compile); },
                                "log_names has \"loss_of_nothing\", which is no loss or metric; there are");
}

TEST(Bert, DropsTheSameOnAMesh) {
  BertOptions options = small();
  options.dropout = options.attention_dropout = 0.3;
  const auto outputs = [&](const Strategy& strategy) {
    const auto scope = strategy.scope();
    strategy.set_seed(5);
    auto net = strategy.mirror([&] { return drawn(options); });
    const Example batch = pretraining_batch(some_texts(4, small_masking()), small_masking(), generator_of(1));
    const auto each =
        strategy.run([&](Replica& replica) { return net[replica]->forward(batch.inputs).front().second.detach(); });
    return each.values().front();
  };
  const torch::Tensor wanted = outputs(OneDeviceStrategy("/CPU:0"));
  const torch::Tensor got =
      outputs(MeshStrategy(DeviceMesh({2}, {"model"}, cpu_devices(2)), {.layout = layouts::transformer(options)}));
  EXPECT_LT((got - wanted).abs().max().item<double>(), kClose);
}

MaskedLanguageModelTask small_task() {
  MaskedLanguageModelTask task;
  auto& encoder = task.model.encoder.bert;
  encoder.vocab_size = kByteTokens;
  encoder.hidden_size = 8;
  encoder.num_layers = 1;
  encoder.num_attention_heads = 2;
  encoder.intermediate_size = 12;
  encoder.max_position_embeddings = 24;
  for (BertDataConfig* data : {&task.train_data, &task.validation_data}) {
    data->global_batch_size = 4;
    data->seq_length = 19;
    data->max_predictions_per_seq = 3;
  }
  return task;
}

TEST(BertTask, ReadsTextAndHoldsAPartOut) {
  const TemporaryFolder folder;
  write_file(folder / "text", std::string(801, 'a'));
  MaskedLanguageModelTask task = small_task();
  task.train_data.input_path = (folder / "text").string();
  const TaskData data = task.build_inputs({}, /*training=*/true);
  EXPECT_EQ(data.steps_per_epoch, 11);  // 45 of 50 examples
  EXPECT_EQ(data.validation->cardinality(), 2);
  const Example batch = data.train->iterator().next().value();
  const Example zeros = task.example_batch();
  for (const auto& [own, wanted] :
       {std::pair(&batch.inputs, &zeros.inputs), {&batch.targets, &zeros.targets}, {&batch.masks, &zeros.masks}}) {
    ASSERT_EQ(own->size(), wanted->size());
    for (std::size_t i = 0; i < own->size(); ++i) {
      EXPECT_EQ((*own)[i].first, (*wanted)[i].first);
      EXPECT_EQ((*own)[i].second.sizes(), (*wanted)[i].second.sizes()) << (*own)[i].first;
      EXPECT_EQ((*own)[i].second.scalar_type(), (*wanted)[i].second.scalar_type());
    }
  }
}

TEST(BertTask, RefusesWhatDoesNotFit) {
  const auto expect = [](const std::function<void(MaskedLanguageModelTask&)>& change, const std::string& text) {
    MaskedLanguageModelTask task = small_task();
    change(task);
    expect_error<InvalidArgument>([&] { task.build_inputs({}, /*training=*/true); }, text);
  };
  expect([](auto&) {}, "there is no text: --data_dir");
  expect([](auto& task) { task.train_data.seq_length = 25; }, "wanted at most task.model.encoder.bert.max_position");
  expect([](auto& task) { task.train_data.seq_length = 4; }, "task.train_data.seq_length is 4, wanted 5 or more");
  expect([](auto& task) { task.validation_data.use_next_sentence_label = false; },
         "wanted the same, because the model");
  const TemporaryFolder folder;
  write_file(folder / "text", std::string(801, 'a'));
  expect(
      [&](auto& task) {
        task.train_data.input_path = (folder / "text").string();
        task.validation_data.seq_length = 18;
      },
      "task.validation_data.seq_length is 18, but its text is a part of");
}

// As transformers wrote it before version 4, with weights that this model has no place for.
TEST(BertTask, StartsFromWeightsOfHuggingFaces) {
  const TemporaryFolder folder;
  MaskedLanguageModelTask task = small_task();
  const NamedTensors weights = task.build_model().weights();
  NamedTensors older = {{"bert.embeddings.position_ids", torch::arange(24)},
                        {"cls.predictions.decoder.weight", torch::zeros({2})}};
  for (auto [name, value] : weights) {
    if (name.ends_with("LayerNorm.weight")) name.replace(name.size() - 6, 6, "gamma");
    if (name.ends_with("LayerNorm.bias")) name.replace(name.size() - 4, 4, "beta");
    older.emplace_back(name, value + 1.0);
  }
  task.init_checkpoint = (folder / "bert.safetensors").string();
  save_weights(*task.init_checkpoint, older);
  Model model = task.build_model();
  task.initialize(model);
  for (const auto& [name, value] : model.weights()) EXPECT_TRUE(value.equal(named(weights, name) + 1.0)) << name;
  older.pop_back();
  save_weights(*task.init_checkpoint, older);
  expect_error<NotFound>([&] { task.initialize(model); }, "bert.safetensors has no cls.");
}

}  // namespace
}  // namespace cohort::bert_test
