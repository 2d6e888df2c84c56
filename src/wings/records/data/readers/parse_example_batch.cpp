// tf.io.parse_example: each record is parsed by itself, and what its forms gave becomes one value for the batch.
#include <ATen/Functions.h>

#include <algorithm>

#include "base/fail.h"
#include "cohort/data/parse_example.h"

namespace cohort::io {

namespace {

using Texts = std::vector<std::string>;
using Records = std::vector<FeatureValues>;

torch::ScalarType scalar_type_of(FeatureDtype dtype) {
  return dtype == FeatureDtype::kInt64 ? torch::kLong : torch::kFloat;
}

std::vector<int64_t> behind(std::vector<int64_t> first, const std::vector<int64_t>& shape) {
  first.insert(first.end(), shape.begin(), shape.end());
  return first;
}

int64_t batch_of(const Records& records) {
  return static_cast<int64_t>(records.size());
}

BatchValues joined(const std::string& /*name*/, const FixedLenFeature& form, const Records& records) {
  if (form.dtype == FeatureDtype::kString) {
    Texts all;
    for (const FeatureValues& each : records) {
      const auto& texts = std::get<Texts>(each);
      all.insert(all.end(), texts.begin(), texts.end());
    }
    return all;
  }
  torch::Tensor all = at::empty(behind({batch_of(records)}, form.shape), scalar_type_of(form.dtype));
  for (int64_t i = 0; i < batch_of(records); ++i)
    all[i].copy_(std::get<torch::Tensor>(records[static_cast<std::size_t>(i)]));
  return all;
}

// Returns a sparse tensor of rows whose places and values are given row by row.
torch::Tensor sparse_rows(const std::vector<torch::Tensor>& places, const std::vector<torch::Tensor>& values,
                          int64_t columns, torch::ScalarType dtype) {
  std::vector<torch::Tensor> at{at::empty({2, 0}, torch::kLong)};
  std::vector<torch::Tensor> of{at::empty({0}, dtype)};
  for (std::size_t i = 0; i < places.size(); ++i) {
    at.push_back(at::stack({at::full_like(places[i], static_cast<int64_t>(i)), places[i]}));
    of.push_back(values[i]);
  }
  return at::sparse_coo_tensor(at::cat(at, 1), at::cat(of), {static_cast<int64_t>(places.size()), columns},
                               at::TensorOptions(dtype).layout(at::kSparse));
}

BatchValues joined(const std::string& /*name*/, const VarLenFeature& form, const Records& records) {
  if (form.dtype == FeatureDtype::kString) {
    std::vector<Texts> all;
    for (const FeatureValues& each : records) all.push_back(std::get<Texts>(each));
    return all;
  }
  int64_t longest = 0;
  std::vector<torch::Tensor> places;
  std::vector<torch::Tensor> values;
  for (const FeatureValues& each : records) {
    values.push_back(std::get<torch::Tensor>(each));
    places.push_back(at::arange(values.back().numel(), at::TensorOptions(torch::kLong)));
    longest = std::max(longest, values.back().numel());
  }
  return sparse_rows(places, values, longest, scalar_type_of(form.dtype));
}

// Returns the one value that a sequence is filled up with, as a tensor of one element.
torch::Tensor filling(const std::string& name, const FixedLenSequenceFeature& form) {
  if (!form.default_value) return at::zeros({}, scalar_type_of(form.dtype));
  const auto* given = std::get_if<torch::Tensor>(&*form.default_value);
  if (given != nullptr && given->defined() && given->numel() == 1) {
    return given->to(scalar_type_of(form.dtype)).reshape({});
  }
  fail<InvalidArgument>("[data] parse_example: the default of the sequence \"", name, "\" is no single number");
}

Texts filled_texts(const std::string& name, const FixedLenSequenceFeature& form, const Records& records) {
  std::string filler;
  if (form.default_value) {
    const auto* given = std::get_if<Texts>(&*form.default_value);
    if (given == nullptr || given->size() != 1) {
      fail<InvalidArgument>("[data] parse_example: the default of the sequence \"", name, "\" is no single string");
    }
    filler = given->front();
  }
  std::size_t longest = 0;
  for (const FeatureValues& each : records) longest = std::max(longest, std::get<Texts>(each).size());
  Texts all;
  for (const FeatureValues& each : records) {
    Texts texts = std::get<Texts>(each);
    texts.resize(longest, filler);
    all.insert(all.end(), texts.begin(), texts.end());
  }
  return all;
}

BatchValues joined(const std::string& name, const FixedLenSequenceFeature& form, const Records& records) {
  if (form.dtype == FeatureDtype::kString) return filled_texts(name, form, records);
  int64_t longest = 0;
  for (const FeatureValues& each : records) longest = std::max(longest, std::get<torch::Tensor>(each).size(0));
  torch::Tensor all = at::empty(behind({batch_of(records), longest}, form.shape), scalar_type_of(form.dtype));
  all.copy_(filling(name, form).expand_as(all));
  for (int64_t i = 0; i < batch_of(records); ++i) {
    const auto& own = std::get<torch::Tensor>(records[static_cast<std::size_t>(i)]);
    all[i].narrow(0, 0, own.size(0)).copy_(own);
  }
  return all;
}

BatchValues joined(const std::string& /*name*/, const SparseFeature& form, const Records& records) {
  std::vector<torch::Tensor> places;
  std::vector<torch::Tensor> values;
  for (const FeatureValues& each : records) {
    const auto& own = std::get<torch::Tensor>(each);
    places.push_back(own._indices()[0]);
    values.push_back(own._values());
  }
  return sparse_rows(places, values, form.size, scalar_type_of(form.dtype));
}

}  // namespace

std::map<std::string, BatchValues> parse_example(const std::vector<std::string_view>& batch,
                                                 const std::map<std::string, FeatureSpec>& features,
                                                 const std::string& source) {
  for (const auto& [name, spec] : features) {
    const auto* sequence = std::get_if<FixedLenSequenceFeature>(&spec);
    if (sequence == nullptr || sequence->allow_missing) continue;
    fail<InvalidArgument>("[data] parse_example: the sequence \"", name,
                          "\" came without allow_missing, which a batch needs");
  }
  std::map<std::string, Records> records;
  for (const auto& [name, spec] : features) records[name].reserve(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    auto parsed = parse_single_example(batch[i], features, c10::str(source, " ", i));
    for (auto& [name, values] : parsed) records[name].push_back(std::move(values));
  }
  std::map<std::string, BatchValues> result;
  for (const auto& [name, spec] : features) {
    const Records& own = records[name];
    const std::string& feature = name;
    result.emplace(name, std::visit([&](const auto& form) { return joined(feature, form, own); }, spec));
  }
  return result;
}

}  // namespace cohort::io
