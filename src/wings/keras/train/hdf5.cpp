// Reads into and writes from memory of CPU tensors by a pointer (data_ptr): the library knows no tensors.
#include "wings/keras/train/hdf5.h"

#include <hdf5.h>

#include <algorithm>
#include <mutex>

#include "base/fail.h"

namespace cohort {

namespace {

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxObjects = 1'000'000;

// Debian's library is not made for several threads.
std::mutex& library() {
  static std::mutex mutex;
  return mutex;
}

// An identifier of the library with the function that closes it.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// Keeps the library from printing its errors.
class Quiet {
 public:
  Quiet() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  ~Quiet() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

Handle half_type() {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(type, 15, 10, 5, 0, 10);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, 15);
  return {type, H5Tclose};
}

struct ElementType {
  hid_t file;
  torch::ScalarType dtype;
};

std::vector<ElementType> types(hid_t half) {
  return {{H5T_IEEE_F32LE, torch::kFloat}, {H5T_IEEE_F64LE, torch::kDouble}, {half, torch::kHalf},
          {H5T_STD_I64LE, torch::kLong},   {H5T_STD_I32LE, torch::kInt},     {H5T_STD_I16LE, torch::kShort},
          {H5T_STD_I8LE, torch::kChar},    {H5T_STD_U8LE, torch::kByte}};
}

// Reads the datasets of one file.
class Tree {
 public:
  Tree(std::size_t bytes, std::string source) : left_(bytes), source_(std::move(source)), half_(half_type()) {}

  void read_group(hid_t group, const std::string& path, int depth) {
    if (depth > kMaxDepth) fail<DataLoss>(source_, ": \"", path, "\" is in more than ", kMaxDepth, " groups");
    H5G_info_t info{};
    if (H5Gget_info(group, &info) < 0) fail<DataLoss>(source_, ": the group \"", path, "\" cannot be read");
    for (hsize_t i = 0; i < info.nlinks; ++i) {
      if (++objects_ > kMaxObjects) fail<DataLoss>(source_, ": has more than ", kMaxObjects, " objects");
      read_link(group, path, i, depth);
    }
  }

  std::map<std::string, torch::Tensor> take() { return std::move(tensors_); }

 private:
  void read_link(hid_t group, const std::string& path, hsize_t index, int depth) {
    const auto size = H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_NATIVE, index, nullptr, 0, H5P_DEFAULT);
    if (size <= 0 || size > 4096) fail<DataLoss>(source_, ": a name in the group \"", path, "\" cannot be read");
    std::string name(static_cast<std::size_t>(size) + 1, '\0');
    H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_NATIVE, index, name.data(), name.size(), H5P_DEFAULT);
    name.pop_back();
    const std::string whole = path.empty() ? name : path + "/" + name;
    H5L_info_t link{};
    if (H5Lget_info(group, name.c_str(), &link, H5P_DEFAULT) < 0) {
      fail<DataLoss>(source_, ": the link \"", whole, "\" cannot be read");
    }
    if (link.type != H5L_TYPE_HARD) {
      fail<NotFound>(source_, ": \"", whole, "\" is ",
                     link.type == H5L_TYPE_EXTERNAL ? "a link to another file" : "a link to another place",
                     ", which is not supported");
    }
    const Handle object(H5Oopen(group, name.c_str(), H5P_DEFAULT), H5Oclose);
    if (!object.valid()) fail<DataLoss>(source_, ": \"", whole, "\" cannot be opened");
    const H5I_type_t type = H5Iget_type(object.get());
    if (type == H5I_GROUP) return read_group(object.get(), whole, depth + 1);
    if (type != H5I_DATASET) fail<NotFound>(source_, ": \"", whole, "\" is neither a group nor a dataset");
    tensors_[whole] = read_dataset(object.get(), whole);
  }

  // Throws unless the elements lie in the file itself as they are.
  void require_plain(hid_t dataset, const std::string& path) const {
    const Handle made(H5Dget_create_plist(dataset), H5Pclose);
    const H5D_layout_t layout = made.valid() ? H5Pget_layout(made.get()) : H5D_LAYOUT_ERROR;
    if (layout == H5D_LAYOUT_ERROR) fail<DataLoss>(source_, ": the layout of \"", path, "\" cannot be read");
    if (H5Pget_external_count(made.get()) != 0) {
      fail<NotFound>(source_, ": \"", path, "\" has its data in another file, which is not supported");
    }
    if (layout != H5D_CONTIGUOUS && layout != H5D_COMPACT) {
      fail<NotFound>(source_, ": \"", path, "\" is ", layout == H5D_VIRTUAL ? "virtual" : "in chunks",
                     ", which is not supported, only datasets in one piece");
    }
  }

  std::vector<int64_t> shape_of(hid_t dataset, const std::string& path) const {
    const Handle space(H5Dget_space(dataset), H5Sclose);
    const H5S_class_t kind = space.valid() ? H5Sget_simple_extent_type(space.get()) : H5S_NO_CLASS;
    if (kind != H5S_SIMPLE && kind != H5S_SCALAR) fail<DataLoss>(source_, ": \"", path, "\" has no shape");
    const int rank = H5Sget_simple_extent_ndims(space.get());
    std::vector<hsize_t> sizes(static_cast<std::size_t>(std::max(rank, 0)));
    if (rank < 0 || (rank > 0 && H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr) != rank)) {
      fail<DataLoss>(source_, ": the shape of \"", path, "\" cannot be read");
    }
    return {sizes.begin(), sizes.end()};
  }

  torch::Tensor read_dataset(hid_t dataset, const std::string& path) {
    require_plain(dataset, path);
    const Handle type(H5Dget_type(dataset), H5Tclose);
    const std::vector<ElementType> rows = types(half_.get());
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const ElementType& each) { return H5Tequal(type.get(), each.file) > 0; });
    if (row == rows.end()) {
      fail<NotFound>(source_, ": \"", path,
                     "\" has elements of an unknown type, wanted floats of 16, 32 or 64 bits or integers");
    }
    const std::vector<int64_t> shape = shape_of(dataset, path);
    const std::size_t width = torch::elementSize(row->dtype);
    std::size_t count = 1;
    for (const int64_t size : shape) {
      // The rest of the file bounds the product before anything overflows.
      if (size < 0 || (size > 0 && count > left_ / width / static_cast<std::size_t>(size))) {
        fail<DataLoss>(source_, ": \"", path, "\" has the shape ", c10::IntArrayRef(shape), ", more than the ", left_,
                       " bytes that are left of the file");
      }
      count *= static_cast<std::size_t>(size);
    }
    if (count * width > left_ || H5Dget_storage_size(dataset) != count * width) {
      fail<DataLoss>(source_, ": \"", path, "\" has the shape ", c10::IntArrayRef(shape),
                     ", which is not the size of its data");
    }
    left_ -= count * width;
    torch::Tensor tensor = torch::empty(shape, row->dtype);
    if (count > 0 && H5Dread(dataset, row->file, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.data_ptr()) < 0) {
      fail<DataLoss>(source_, ": the data of \"", path, "\" cannot be read");
    }
    return tensor;
  }

  std::size_t left_;  // the bytes of the file that no dataset has taken; datasets that share some have fewer
  std::string source_;
  Handle half_;
  std::size_t objects_ = 0;
  std::map<std::string, torch::Tensor> tensors_;
};

// How files are made: with the groups of a path, and without the times of their making, so that equal models have equal
// files.
struct MakeLists {
  MakeLists() {
    made_ = H5Pset_create_intermediate_group(links.get(), 1) >= 0 && H5Pset_obj_track_times(objects.get(), false) >= 0;
  }
  bool made() const { return made_; }

  Handle links{H5Pcreate(H5P_LINK_CREATE), H5Pclose};
  Handle objects{H5Pcreate(H5P_DATASET_CREATE), H5Pclose};

 private:
  bool made_;
};

void write_dataset(hid_t file, const MakeLists& lists, hid_t half, const std::string& path,
                   const torch::Tensor& value) {
  const torch::Tensor tensor = value.detach().cpu().contiguous();
  std::vector<hsize_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
  const Handle space(
      sizes.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
      H5Sclose);
  for (const ElementType& row : types(half)) {
    if (row.dtype != tensor.scalar_type()) continue;
    const Handle dataset(
        H5Dcreate2(file, path.c_str(), row.file, space.get(), lists.links.get(), lists.objects.get(), H5P_DEFAULT),
        H5Dclose);
    if (!dataset.valid() || H5Dwrite(dataset.get(), row.file, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.data_ptr()) < 0) {
      fail<Unavailable>("[keras] the dataset \"", path, "\" cannot be written");
    }
    return;
  }
  fail<NotFound>("[keras] \"", path, "\" is of ", tensor.scalar_type(), ", which has no type in the file");
}

Handle in_memory() {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fapl_core(access, 1 << 16, /*backing_store=*/0);
  return {access, H5Pclose};
}

}  // namespace

std::map<std::string, torch::Tensor> read_hdf5(const std::string& bytes, const std::string& source) {
  const std::lock_guard lock(library());
  const Quiet quiet;
  const Handle access = in_memory();
  std::string image = bytes;  // the library wants memory that it may write to
  H5Pset_file_image(access.get(), image.data(), image.size());
  const Handle file(H5Fopen("model.weights.h5", H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!file.valid()) fail<DataLoss>(source, ": is not a whole HDF5 file");
  const Handle root(H5Gopen2(file.get(), "/", H5P_DEFAULT), H5Gclose);
  if (!root.valid()) fail<DataLoss>(source, ": has no root group");
  Tree tree(bytes.size(), source);
  tree.read_group(root.get(), "", 0);
  return tree.take();
}

std::string write_hdf5(const NamedTensors& datasets) {
  const std::lock_guard lock(library());
  const Quiet quiet;
  const Handle access = in_memory();
  const Handle file(H5Fcreate("model.weights.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
  const MakeLists lists;
  const Handle half = half_type();
  if (!file.valid() || !lists.made()) {
    fail<Unavailable>("[keras] there is no memory for the weights");
  }
  for (const auto& [path, tensor] : datasets) write_dataset(file.get(), lists, half.get(), path, tensor);
  H5Fflush(file.get(), H5F_SCOPE_GLOBAL);
  const auto size = H5Fget_file_image(file.get(), nullptr, 0);
  std::string bytes(static_cast<std::size_t>(std::max<ssize_t>(size, 0)), '\0');
  if (size <= 0 || H5Fget_file_image(file.get(), bytes.data(), bytes.size()) != size) {
    fail<Unavailable>("[keras] the weights cannot be written");
  }
  return bytes;
}

}  // namespace cohort
