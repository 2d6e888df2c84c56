// tf.io.parse_single_example: each form of a feature is one function that takes the values of the record.
#include "cohort/data/parse_example.h"

#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/data/tf_example.h"

namespace cohort::io {

namespace {

// One feature of one record.
struct FeaturePlace {
  const TFExample& example;
  const std::string& name;
  const std::string& source;

  template <typename... Parts>
  [[noreturn]] void fail_data(const Parts&... parts) const {
    fail<DataLoss>("[data] ", source, ": the feature \"", name, "\" ", parts...);
  }
};

const char* dtype_name(FeatureDtype dtype) {
  switch (dtype) {
    case FeatureDtype::kString:
      return "bytes";
    case FeatureDtype::kInt64:
      return "integers";
    default:
      return "floats";
  }
}

TFExample::Kind kind_for(FeatureDtype dtype) {
  switch (dtype) {
    case FeatureDtype::kString:
      return TFExample::Kind::kBytes;
    case FeatureDtype::kInt64:
      return TFExample::Kind::kInt64s;
    default:
      return TFExample::Kind::kFloats;
  }
}

// Returns the number of elements of a shape.
int64_t elements_of(const std::string& name, const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0) {
      fail<InvalidArgument>("[data] parse_single_example: the shape of \"", name, "\" has the size ", size);
    }
    count *= size;
  }
  return count;
}

int64_t count_of(const FeatureValues& values) {
  if (const auto* tensor = std::get_if<torch::Tensor>(&values)) return tensor->numel();
  return static_cast<int64_t>(std::get<std::vector<std::string>>(values).size());
}

// Returns all values of a feature; nothing where the record has none.
std::optional<FeatureValues> values_at(const FeaturePlace& place, FeatureDtype dtype) {
  const TFExample::Kind kind = place.example.kind(place.name);
  if (kind == TFExample::Kind::kNone) return std::nullopt;
  if (kind != kind_for(dtype)) place.fail_data("has values of another sort, wanted ", dtype_name(dtype));
  if (dtype == FeatureDtype::kInt64) return place.example.int64_list(place.name);
  if (dtype == FeatureDtype::kFloat32) return place.example.float_list(place.name);
  const auto views = place.example.bytes_list(place.name);
  return std::vector<std::string>(views.begin(), views.end());
}

FeatureValues none_of(FeatureDtype dtype) {
  if (dtype == FeatureDtype::kString) return std::vector<std::string>();
  return at::empty({0}, dtype == FeatureDtype::kInt64 ? torch::kLong : torch::kFloat);
}

FeatureValues shaped(FeatureValues values, const std::vector<int64_t>& shape) {
  if (auto* tensor = std::get_if<torch::Tensor>(&values)) *tensor = tensor->reshape(shape);
  return values;
}

// Returns the default in the feature's dtype and shape.
FeatureValues default_for(const std::string& name, const FixedLenFeature& form, int64_t elements) {
  const FeatureValues& given = *form.default_value;
  const bool strings = std::holds_alternative<std::vector<std::string>>(given);
  const int64_t count = strings || std::get<torch::Tensor>(given).defined() ? count_of(given) : 0;
  if (strings != (form.dtype == FeatureDtype::kString) || (count != 1 && count != elements)) {
    fail<InvalidArgument>("[data] parse_single_example: the default of \"", name, "\" has ", count,
                          strings ? " strings" : " numbers", ", wanted 1 or ", elements, " ", dtype_name(form.dtype));
  }
  if (strings) {
    const auto& texts = std::get<std::vector<std::string>>(given);
    return count == elements ? texts : std::vector<std::string>(static_cast<std::size_t>(elements), texts.front());
  }
  const torch::Tensor numbers = std::get<torch::Tensor>(given)
                                    .to(form.dtype == FeatureDtype::kInt64 ? torch::kLong : torch::kFloat)
                                    .reshape({-1});
  return shaped(numbers.expand({elements}).clone(), form.shape);
}

FeatureValues parsed(const FeaturePlace& place, const FixedLenFeature& form) {
  const int64_t elements = elements_of(place.name, form.shape);
  std::optional<FeatureValues> values = values_at(place, form.dtype);
  if (!values) {
    if (form.default_value) return default_for(place.name, form, elements);
    place.fail_data("is not there, and it is needed");
  }
  if (count_of(*values) != elements) place.fail_data("has ", count_of(*values), " values, wanted ", elements);
  return shaped(std::move(*values), form.shape);
}

FeatureValues parsed(const FeaturePlace& place, const VarLenFeature& form) {
  return values_at(place, form.dtype).value_or(none_of(form.dtype));
}

FeatureValues parsed(const FeaturePlace& place, const FixedLenSequenceFeature& form) {
  const int64_t elements = elements_of(place.name, form.shape);
  if (elements == 0) {
    fail<InvalidArgument>("[data] parse_single_example: the elements of the sequence \"", place.name, "\" are empty");
  }
  std::optional<FeatureValues> values = values_at(place, form.dtype);
  if (!values && !form.allow_missing) place.fail_data("is not there, and it is needed");
  if (!values) values = none_of(form.dtype);
  const int64_t count = count_of(*values);
  if (count % elements != 0) place.fail_data("has ", count, " values, wanted a multiple of ", elements);
  std::vector<int64_t> shape = form.shape;
  shape.insert(shape.begin(), count / elements);
  return shaped(std::move(*values), shape);
}

FeatureValues parsed(const FeaturePlace& place, const SparseFeature& form) {
  if (form.dtype == FeatureDtype::kString || form.size < 0) {
    fail<InvalidArgument>("[data] parse_single_example: the sparse \"", place.name, "\" has the size ", form.size,
                          " and ", dtype_name(form.dtype), ", wanted 0 or more numbers");
  }
  const FeaturePlace at_indices{place.example, form.index_key, place.source};
  const FeaturePlace at_values{place.example, form.value_key, place.source};
  const auto places = std::get<torch::Tensor>(parsed(at_indices, VarLenFeature{.dtype = FeatureDtype::kInt64}));
  const auto values = std::get<torch::Tensor>(parsed(at_values, VarLenFeature{.dtype = form.dtype}));
  if (places.numel() != values.numel()) {
    place.fail_data("has ", places.numel(), " places (\"", form.index_key, "\") for ", values.numel(), " values (\"",
                    form.value_key, "\")");
  }
  if (places.numel() > 0 && (places.min().item<int64_t>() < 0 || places.max().item<int64_t>() >= form.size)) {
    at_indices.fail_data("has places from ", places.min().item<int64_t>(), " to ", places.max().item<int64_t>(),
                         ", wanted 0 to ", form.size - 1);
  }
  return at::sparse_coo_tensor(places.unsqueeze(0), values, {form.size}, values.options().layout(at::kSparse));
}

}  // namespace

std::map<std::string, FeatureValues> parse_single_example(std::string_view bytes,
                                                          const std::map<std::string, FeatureSpec>& features,
                                                          const std::string& source) {
  const TFExample example = TFExample::parse(bytes, source);
  std::map<std::string, FeatureValues> result;
  for (const auto& [name, spec] : features) {
    const FeaturePlace place{example, name, source};
    result.emplace(name, std::visit([&](const auto& form) { return parsed(place, form); }, spec));
  }
  return result;
}

}  // namespace cohort::io
