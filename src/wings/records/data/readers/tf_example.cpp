#include "cohort/data/tf_example.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/fail.h"
#include "device/host_memory.h"
#include "tf_example.pb.h"

namespace cohort {

namespace {

const char* name_of(TFExample::Kind kind) {
  switch (kind) {
    case TFExample::Kind::kBytes:
      return "bytes";
    case TFExample::Kind::kFloats:
      return "floats";
    case TFExample::Kind::kInt64s:
      return "integers";
    default:
      return "nothing";
  }
}

TFExample::Kind kind_of(const tf::Feature& feature) {
  switch (feature.kind_case()) {
    case tf::Feature::kBytesList:
      return TFExample::Kind::kBytes;
    case tf::Feature::kFloatList:
      return TFExample::Kind::kFloats;
    case tf::Feature::kInt64List:
      return TFExample::Kind::kInt64s;
    default:
      return TFExample::Kind::kNone;
  }
}

template <typename List>
torch::Tensor tensor_of(const List& list, torch::ScalarType dtype) {
  torch::Tensor values = at::empty({list.value_size()}, dtype);
  if (list.value_size() > 0) std::memcpy(host_bytes(values).data(), list.value().data(), values.nbytes());
  return values;
}

}  // namespace

class TFExample::Impl {
 public:
  const tf::Feature& feature(const std::string& name, Kind wanted) const {
    const auto& all = message.features().feature();
    const auto found = all.find(name);
    if (found == all.end()) fail<NotFound>("[data] ", where(), "there is no feature \"", name, "\" among ", names());
    const Kind kind = kind_of(found->second);
    if (kind == wanted) return found->second;
    fail<InvalidArgument>("[data] ", where(), "the feature \"", name, "\" holds ", name_of(kind), ", wanted ",
                          name_of(wanted));
  }

  // Returns the only value of a feature's list.
  template <typename List>
  decltype(auto) only(const List& list, const std::string& name) const {
    if (list.value_size() == 1) return list.value(0);
    fail<InvalidArgument>("[data] ", where(), "the feature \"", name, "\" has ", list.value_size(),
                          " values, wanted one");
  }

  std::vector<std::string> names() const {
    std::vector<std::string> list;
    for (const auto& [name, feature] : message.features().feature()) list.push_back(name);
    std::sort(list.begin(), list.end());
    return list;
  }

  tf::Feature& make(const std::string& name) { return (*message.mutable_features()->mutable_feature())[name]; }

  tf::Example message;
  std::string source;  // the name of the record that was parsed; empty: the example was made here

 private:
  std::string where() const { return source.empty() ? "" : source + ": "; }
};

TFExample::TFExample() : impl_(std::make_shared<Impl>()) {}

TFExample TFExample::parse(std::string_view bytes, const std::string& source) {
  TFExample example;
  const bool small = bytes.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max());
  if (!small || !example.impl_->message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    fail<DataLoss>("[data] ", source, ": its ", bytes.size(), " bytes are no tf.train.Example");
  }
  example.impl_->source = source;
  return example;
}

std::string TFExample::serialize() const {
  return impl_->message.SerializeAsString();
}

std::vector<std::string> TFExample::names() const {
  return impl_->names();
}

TFExample::Kind TFExample::kind(const std::string& name) const {
  const auto& all = impl_->message.features().feature();
  const auto found = all.find(name);
  return found == all.end() ? Kind::kNone : kind_of(found->second);
}

std::string_view TFExample::bytes(const std::string& name) const {
  return impl_->only(impl_->feature(name, Kind::kBytes).bytes_list(), name);
}
std::vector<std::string_view> TFExample::bytes_list(const std::string& name) const {
  const auto& values = impl_->feature(name, Kind::kBytes).bytes_list().value();
  return {values.begin(), values.end()};
}
int64_t TFExample::int64(const std::string& name) const {
  return impl_->only(impl_->feature(name, Kind::kInt64s).int64_list(), name);
}
float TFExample::floating(const std::string& name) const {
  return impl_->only(impl_->feature(name, Kind::kFloats).float_list(), name);
}
torch::Tensor TFExample::int64_list(const std::string& name) const {
  return tensor_of(impl_->feature(name, Kind::kInt64s).int64_list(), torch::kLong);
}
torch::Tensor TFExample::float_list(const std::string& name) const {
  return tensor_of(impl_->feature(name, Kind::kFloats).float_list(), torch::kFloat);
}

void TFExample::set_bytes(const std::string& name, std::vector<std::string> values) {
  tf::BytesList& list = *impl_->make(name).mutable_bytes_list();
  list.clear_value();
  for (std::string& value : values) list.add_value(std::move(value));
}
void TFExample::set_int64s(const std::string& name, const std::vector<int64_t>& values) {
  impl_->make(name).mutable_int64_list()->mutable_value()->Assign(values.begin(), values.end());
}
void TFExample::set_floats(const std::string& name, const std::vector<float>& values) {
  impl_->make(name).mutable_float_list()->mutable_value()->Assign(values.begin(), values.end());
}

}  // namespace cohort
