// .keras files of models with masks.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/train/functional.h"
#include "cohort/train/keras_file.h"
#include "cohort/train/layers.h"
#include "tests/support/files.h"

namespace cohort::testing::keras_masks_test {
namespace {

// Masks that would do something else there are refused.
TEST(KerasMasks, AttentionIsSavedWithMasksOfKeras) {
  using Masks = MultiHeadAttentionOptions::Masks;
  const TemporaryFolder folder;
  torch::manual_seed(6);
  const auto made = [](bool masked, Masks masks) {
    const SymbolicTensor ids = Input({4}, {.dtype = torch::kLong, .name = "ids"});
    const SymbolicTensor words = Embedding({.input_dim = 5, .output_dim = 3, .mask_zero = masked})(ids);
    const MultiHeadAttentionOptions options{
        .num_heads = 2, .key_dim = 2, .use_causal_mask = true, .masks = masks, .name = "heads"};
    return Functional(ids, MultiHeadAttention(options)(words));
  };
  const torch::Tensor ids = torch::tensor({{1, 2, 0, 0}, {0, 3, 4, 0}});
  for (const bool masked : {false, true}) {
    const Functional model = made(masked, masked ? Masks::kKeras3 : Masks::kZeros);
    save_model(model, folder / "m.keras");
    EXPECT_TRUE(torch::equal(load_model(folder / "m.keras").predict(ids), Model(model).predict(ids)));
  }
  const auto expect_named = [&](const Model& model, const std::string& names) {
    try {
      save_model(model, folder / "no.keras");
      ADD_FAILURE() << names << " was written";
    } catch (const NotFound& error) {
      EXPECT_NE(std::string(error.what()).find(names), std::string::npos) << error.what();
    }
  };
  expect_named(made(true, Masks::kZeros), "the masks of the layer \"heads\" (MultiHeadAttention) are not Keras'");
  Sequential row{MultiHeadAttention({.num_heads = 2, .key_dim = 2})};
  row.build({4, 3});
  expect_named(row, "use a Functional");
}

}  // namespace
}  // namespace cohort::testing::keras_masks_test
