#include "wings/xla/record/cell.h"

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <numeric>

#include "base/fail.h"
#include "wings/xla/record/function_recording.h"
#include "wings/xla/record/recorder.h"
#include "wings/xla/record/repetition.h"

namespace cohort::record {

namespace {

c10::IValue ints_of(const std::vector<int64_t>& values) {
  return c10::IValue(values);
}

// Returns whether two views of one memory are the same; the stride of a dimension with one element does not matter.
bool is_same(const Strided& a, const Strided& b) {
  if (a.sizes != b.sizes || a.offset != b.offset) return false;
  for (std::size_t i = 0; i < a.sizes.size(); ++i) {
    if (a.sizes[i] > 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

// Returns the dimensions from the one with the greatest stride to that with the smallest.
std::vector<int64_t> by_stride(const Strided& view) {
  std::vector<int64_t> dims(view.sizes.size());
  std::iota(dims.begin(), dims.end(), 0);
  const auto key = [&](int64_t d) {
    return view.sizes[static_cast<std::size_t>(d)] == 1 ? int64_t{-1} : view.strides[static_cast<std::size_t>(d)];
  };
  std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) { return key(a) > key(b); });
  return dims;
}

// Returns whether the view has every element of a memory of that size once.
bool covers(const Strided& view, int64_t numel) {
  if (view.offset != 0 || c10::multiply_integers(view.sizes) != numel) return false;
  const std::vector<int64_t> dims = by_stride(view);
  int64_t wanted = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    const auto d = static_cast<std::size_t>(dims[i]);
    if (view.sizes[d] == 1) continue;
    if (view.strides[d] != wanted) return false;
    wanted *= view.sizes[d];
  }
  return true;
}

// Returns the value with its dimensions in the order in which they lie in memory.
Value in_memory_order(const Value& value, const Strided& root) {
  if (root.is_contiguous()) return value;
  const std::vector<int64_t> dims = by_stride(root);
  TensorType type{value.type().dtype, {}};
  for (const int64_t d : dims) type.sizes.push_back(root.sizes[static_cast<std::size_t>(d)]);
  return make_node("aten::permute", {value, ints_of(dims)}, std::move(type));
}

c10::Storage make_storage(std::unique_ptr<Cell> cell, int64_t numel) {
  const c10::Device device(c10::DeviceType::XLA, static_cast<c10::DeviceIndex>(cell->recording().device()));
  const auto bytes = static_cast<std::size_t>(numel) * c10::elementSize(cell->dtype());
  const auto give_up = [](void* held) { std::unique_ptr<Cell>(static_cast<Cell*>(held)).reset(); };
  Cell& own = *cell;
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, cell.release(), give_up, device),
                       nullptr, false);
  own.set_storage(storage.unsafeGetStorageImpl());
  return storage;
}

torch::Tensor tensor_over(c10::Storage storage, torch::ScalarType dtype, const Strided& view) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::XLA),
                                                   c10::scalarTypeToTypeMeta(dtype));
  impl->set_sizes_and_strides(view.sizes, view.strides);
  impl->set_storage_offset(view.offset);
  return torch::Tensor(std::move(impl));
}

}  // namespace

std::vector<int64_t> dense_strides(c10::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

bool Strided::is_contiguous() const {
  return is_same(*this, {sizes, dense_strides(sizes), offset});
}

Strided strided_of(const torch::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset()};
}

Value make_node(std::string op, std::vector<Argument> arguments, TensorType type) {
  auto node = std::make_shared<Node>();
  node->op = std::move(op);
  node->arguments = std::move(arguments);
  node->outputs.push_back(std::move(type));
  node->layer = layer_of(node->op, node->arguments);
  return {std::move(node), 0};
}

Cell::Cell(Recording& recording, Value value, Strided root)
    : recording_(recording), value_(std::move(value)), root_(std::move(root)) {
  if (value_.node->is_leaf()) placed_ = value_.node;
  const std::scoped_lock lock(recording_.mutex_);
  id_ = recording_.next_cell_++;
  is_of_function_ = recording_.is_traced_here();
  recording_.cells_.emplace(id_, this);
}

Cell::~Cell() {
  const std::scoped_lock lock(recording_.mutex_);
  recording_.cells_.erase(id_);
}

Value Cell::read(const Strided& view) {
  const std::scoped_lock lock(recording_.mutex_);
  recording_.note_use(*this);
  if (is_same(view, root_)) return value_;
  for (const auto& [known, value] : views_) {
    if (is_same(known, view)) return value;
  }
  Value read =
      make_node("aten::as_strided",
                {in_memory_order(value_, root_), ints_of(view.sizes), ints_of(view.strides), c10::IValue(view.offset)},
                {dtype(), view.sizes});
  views_.emplace_back(view, read);
  return read;
}

void Cell::write(const Strided& view, const Value& value) {
  const std::scoped_lock lock(recording_.mutex_);
  recording_.note_use(*this);
  views_.clear();
  if (value.node->is_leaf()) placed_ = value.node;  // memory of its own
  if (is_same(view, root_)) {
    value_ = value;
    return;
  }
  if (covers(view, value_.type().numel())) {
    value_ = value;
    root_ = view;
    return;
  }
  const Value memory = in_memory_order(value_, root_);
  const TensorType& type = memory.type();
  value_ = make_node("aten::as_strided_scatter",
                     {memory, value, ints_of(view.sizes), ints_of(view.strides), c10::IValue(view.offset)}, type);
  root_ = {type.sizes, dense_strides(type.sizes), 0};
}

void Cell::replace(const Value& value) {
  views_.clear();
  value_ = value;
  placed_ = value.node;
  if (!name_.empty()) value_.node->layer = name_;
}

c10::Storage Cell::storage() const {
  return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage_));
}

void Cell::set_state(const Value& value, const Strided& root, std::shared_ptr<Node> placed) {
  views_.clear();
  value_ = value;
  root_ = root;
  placed_ = std::move(placed);
}

void Cell::bump_version() {
  if (version_.enabled()) version_.bump();
}

void Cell::set_name(std::string name) {
  const std::scoped_lock lock(recording_.mutex_);
  name_ = std::move(name);
  if (value_.node->is_leaf()) value_.node->layer = name_;
}

Cell& cell_of(const torch::Tensor& tensor) {
  if (!is_recorded(tensor))
    fail<InvalidArgument>("[record] got a tensor that is not recorded, wanted one of a device of the type XLA");
  Cell& cell = *static_cast<Cell*>(tensor.storage().data_ptr().get_context());
  FunctionRecording::note_tensor(cell, tensor);
  return cell;
}

std::optional<uint64_t> gradient_of(const torch::Tensor& tensor) {
  const torch::Tensor& gradient = tensor.grad();
  return is_recorded(gradient) ? std::optional(cell_of(gradient).id()) : std::nullopt;
}

torch::Tensor make_tensor(const Value& value, const Strided& view, Recording& recording) {
  const int64_t numel = value.type().numel();
  const Strided root = covers(view, numel) ? view : Strided{view.sizes, dense_strides(view.sizes), 0};
  auto cell = std::make_unique<Cell>(recording, value, root);
  Cell& own = *cell;
  torch::Tensor made = tensor_over(make_storage(std::move(cell), numel), value.type().dtype, root);
  own.set_version(made.unsafeGetTensorImpl()->version_counter());
  return made;
}

torch::Tensor make_view(const torch::Tensor& of, const Strided& view) {
  (void)cell_of(of);  // a use of the tensor
  return tensor_over(of.storage(), of.scalar_type(), view);
}

bool is_recorded(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::XLA && tensor.has_storage();
}

Value value_of(const torch::Tensor& tensor) {
  return cell_of(tensor).read(strided_of(tensor));
}

torch::Tensor make_tensor(const Value& value, torch::Device device) {
  const auto& sizes = value.type().sizes;
  return make_tensor(value, {sizes, dense_strides(sizes), 0}, recording_of(device));
}

void assign(const torch::Tensor& tensor, const Value& value) {
  const TensorType type{tensor.scalar_type(), tensor.sizes().vec()};
  if (!(value.type() == type)) {
    fail<Internal>("[record] a tensor of ", to_string(type), " was given a value of ", to_string(value.type()));
  }
  cell_of(tensor).write(strided_of(tensor), value);
}

void set_name(const torch::Tensor& tensor, std::string_view name) {
  cell_of(tensor).set_name(std::string(name));
}

torch::Tensor make_number(const at::Scalar& number, torch::ScalarType dtype, torch::Device device) {
  return make_tensor(make_scalar(number, dtype), device);
}

torch::Tensor make_parameter(const TensorType& type, torch::Device device, std::string name) {
  Repetition* const repetition = Repetition::here();
  if (repetition != nullptr) {
    torch::Tensor noted = repetition->take_parameter(type, device);
    if (noted.defined()) return noted;
  }
  torch::Tensor tensor = make_tensor(make_data(type, nullptr), device);
  set_name(tensor, name);
  if (repetition != nullptr) repetition->note_parameter(tensor);
  return tensor;
}

void move_in_place(torch::Tensor& tensor, torch::Device device) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor moved = tensor.detach().to(device);
  tensor.unsafeGetTensorImpl()->shallow_copy_from(moved.getIntrusivePtr());
  cell_of(tensor).set_version(tensor.unsafeGetTensorImpl()->version_counter());
}

}  // namespace cohort::record
