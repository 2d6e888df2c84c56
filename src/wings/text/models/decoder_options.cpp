#include "wings/text/models/decoder_options.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>

#include "base/fail.h"

namespace cohort::models {

namespace {

constexpr std::array kProjections = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};

void check_lora(const LoraOptions& lora) {
  if (lora.rank < 0) fail<InvalidArgument>("[models] decoder: lora.rank is ", lora.rank, ", wanted 0 or more");
  if (lora.rank == 0) return;
  if (!(lora.dropout >= 0.0 && lora.dropout < 1.0)) {
    fail<InvalidArgument>("[models] decoder: lora.dropout is ", lora.dropout, ", wanted 0 or more and below 1");
  }
  if (lora.target_modules.empty()) fail<InvalidArgument>("[models] decoder: lora.target_modules is empty");
  for (const std::string& name : lora.target_modules) {
    if (std::find(kProjections.begin(), kProjections.end(), name) != kProjections.end()) continue;
    fail<InvalidArgument>("[models] decoder: lora.target_modules has ", name, ", wanted names of ",
                          c10::Join(", ", kProjections));
  }
}

// Sets head_dim where it is not given.
void check_heads(DecoderOptions& options) {
  if (options.head_dim == 0 && options.hidden_size % (2 * options.num_heads) != 0) {
    fail<InvalidArgument>("[models] decoder: hidden_size is ", options.hidden_size, ", wanted a multiple of ",
                          2 * options.num_heads, ", twice num_heads: positions turn pairs of a head's numbers");
  }
  if (options.head_dim == 0) options.head_dim = options.hidden_size / options.num_heads;
  if (options.head_dim < 2 || options.head_dim % 2 != 0) {
    fail<InvalidArgument>("[models] decoder: head_dim is ", options.head_dim,
                          ", wanted an even number: positions turn pairs of a head's numbers");
  }
  if (options.num_heads % options.num_kv_heads != 0) {
    fail<InvalidArgument>("[models] decoder: num_kv_heads is ", options.num_kv_heads,
                          ", wanted a divisor of num_heads, ", options.num_heads);
  }
}

void check_scaling(const DecoderOptions& options) {
  const RopeScaling& scaling = options.rope_scaling;
  if (scaling.type.empty()) return;
  constexpr std::array kTypes = {"linear", "dynamic", "llama3"};
  if (std::find(kTypes.begin(), kTypes.end(), scaling.type) == kTypes.end()) {
    fail<InvalidArgument>("[models] decoder: rope_scaling.type is \"", scaling.type, "\", wanted one of ",
                          c10::Join(", ", kTypes), ", or an empty text for none");
  }
  if (!(scaling.factor >= 1.0)) {
    fail<InvalidArgument>("[models] decoder: rope_scaling.factor is ", scaling.factor, ", wanted 1 or more");
  }
  if (scaling.type != "linear" && scaling.original_max_positions < 1) {
    fail<InvalidArgument>("[models] decoder: rope_scaling.original_max_positions is ", scaling.original_max_positions,
                          ", wanted the positions of the training for the type ", scaling.type);
  }
  if (scaling.type == "dynamic" && options.head_dim == 2) {
    fail<InvalidArgument>("[models] decoder: head_dim is 2, wanted 4 or more for rope_scaling of type dynamic");
  }
  if (scaling.type == "llama3" && !(scaling.high_freq_factor > scaling.low_freq_factor)) {
    fail<InvalidArgument>("[models] decoder: rope_scaling.high_freq_factor is ", scaling.high_freq_factor,
                          ", wanted more than low_freq_factor, ", scaling.low_freq_factor);
  }
}

}  // namespace

DecoderOptions checked(DecoderOptions options) {
  const auto positive = [](const char* name, int64_t value) {
    if (value < 1) fail<InvalidArgument>("[models] decoder: ", name, " is ", value, ", wanted 1 or more");
  };
  positive("vocab_size", options.vocab_size);
  positive("hidden_size", options.hidden_size);
  positive("intermediate_size", options.intermediate_size);
  positive("num_layers", options.num_layers);
  positive("num_heads", options.num_heads);
  if (options.num_kv_heads == 0) options.num_kv_heads = options.num_heads;
  positive("num_kv_heads", options.num_kv_heads);
  check_heads(options);
  if (!(options.dropout >= 0.0 && options.dropout < 1.0)) {
    fail<InvalidArgument>("[models] decoder: dropout is ", options.dropout, ", wanted 0 or more and below 1");
  }
  if (!(options.rope_theta > 0.0) || !(options.norm_epsilon >= 0.0) || !(options.initializer_range >= 0.0)) {
    fail<InvalidArgument>("[models] decoder: rope_theta is ", options.rope_theta, ", norm_epsilon ",
                          options.norm_epsilon, " and initializer_range ", options.initializer_range,
                          ", wanted more than 0, 0 or more, and 0 or more");
  }
  check_scaling(options);
  check_lora(options.lora);
  return options;
}

}  // namespace cohort::models
