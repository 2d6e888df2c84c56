// A piece has the place of its entry, and its runs: {"file", "entry", "offset", "length"}, and "stride" and "count"
// where there are several. Whatever a text says, what was parsed can be read without leaving the whole: every run lies
// within it, and the pieces have as many elements as it.
#include "checkpoint/manifest_pieces.h"

#include <algorithm>
#include <limits>

#include "base/fail.h"
#include "checkpoint/safetensors.h"

namespace cohort {

namespace {

nlohmann::json json_of(const PieceInFile& piece) {
  nlohmann::json json{
      {"file", piece.file}, {"entry", piece.entry}, {"offset", piece.runs.offset}, {"length", piece.runs.length}};
  if (piece.runs.count == 1) return json;
  json["stride"] = piece.runs.stride;
  json["count"] = piece.runs.count;
  return json;
}

// Returns a list of whole numbers from 0 on.
std::vector<int64_t> numbers_of(const ManifestFields& fields, const nlohmann::json& tree, const char* key) {
  const auto found = tree.find(key);
  if (found == tree.end() || !found->is_array()) fields.refuse(key, "a list of numbers");
  std::vector<int64_t> list;
  for (const nlohmann::json& item : *found) {
    const bool fits = item.is_number_integer() && item.get<int64_t>() >= 0 &&
                      (!item.is_number_unsigned() || item.get<uint64_t>() <= INT64_MAX);
    if (!fits) fields.refuse(key, "numbers from 0 on");
    list.push_back(item.get<int64_t>());
  }
  return list;
}

// Returns the number of elements; -1 if it is more than a tensor may have.
int64_t count_of(const std::vector<int64_t>& shape, torch::ScalarType dtype) {
  int64_t most = std::numeric_limits<int64_t>::max() / static_cast<int64_t>(c10::elementSize(dtype));
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size != 0 && count > most / size) return -1;
    count *= size;
  }
  return count;
}

WholeTensor whole_of(const ManifestFields& fields, const nlohmann::json& tree) {
  WholeTensor whole;
  const auto dtype = dtype_named(fields.text("dtype"));
  if (!dtype) fields.refuse("dtype", "one of safetensors");
  whole.dtype = *dtype;
  whole.shape = numbers_of(fields, tree, "shape");
  if (count_of(whole.shape, whole.dtype) < 0) fields.refuse("shape", "a smaller one");
  if (!tree.contains("order")) return whole;
  whole.order = numbers_of(fields, tree, "order");
  std::vector<int64_t> sorted = whole.order;
  std::sort(sorted.begin(), sorted.end());
  bool counts = sorted.size() == whole.shape.size();
  for (std::size_t i = 0; counts && i < sorted.size(); ++i) counts = sorted[i] == static_cast<int64_t>(i);
  if (!counts) fields.refuse("order", "each of the shape's dimensions once");
  return whole;
}

PieceInFile piece_of(const ManifestFields& fields, const nlohmann::json& tree, int64_t elements) {
  PieceInFile piece{.file = fields.text("file"), .entry = fields.text("entry"), .runs = {}};
  Runs& runs = piece.runs;
  runs.offset = fields.number("offset");
  runs.length = fields.number("length");
  if (tree.contains("count")) {
    runs.count = fields.number("count");
    runs.stride = fields.number("stride");
    if (runs.count < 2 || runs.stride < runs.length || runs.length == 0) fields.refuse("count", "runs that lie apart");
  }
  if (runs.length > elements || runs.offset > elements - runs.length) fields.refuse("offset", "a place in the tensor");
  const int64_t room = elements - runs.offset - runs.length;
  if (runs.count > 1 && runs.count - 1 > room / runs.stride) fields.refuse("count", "runs within the tensor");
  return piece;
}

TensorInPieces tensor_of(const nlohmann::json& tree, const std::string& place, const std::string& source,
                         Coverage coverage, const Manifest& manifest) {
  const ManifestFields own(tree, place, source);
  TensorInPieces tensor{.whole = whole_of(own, tree), .pieces = {}};
  const int64_t elements = count_of(tensor.whole.shape, tensor.whole.dtype);
  const auto pieces = tree.find("pieces");
  if (pieces == tree.end() || !pieces->is_array()) own.refuse("pieces", "a list");
  int64_t left = elements;
  for (const nlohmann::json& each : *pieces) {
    const ManifestFields fields(each, place + ".pieces", source);
    tensor.pieces.push_back(piece_of(fields, each, elements));
    const PieceInFile& piece = tensor.pieces.back();
    const auto file = manifest.files.find(piece.file);
    if (file == manifest.files.end() || file->second.kind != ManifestFile::Kind::kTensors) {
      fields.refuse("file", "a file of tensors that the manifest has");
    }
    if (piece.runs.size() > left) own.refuse("pieces", "no more elements than the shape has");
    left -= piece.runs.size();
  }
  if (left > 0 && coverage == Coverage::kAll) own.refuse("pieces", "all elements of the shape");
  return tensor;
}

}  // namespace

nlohmann::json json_of_pieces(const Manifest& manifest) {
  nlohmann::json groups = nlohmann::json::object();
  for (const auto& [group, tensors] : manifest.pieces) {
    nlohmann::json& json = groups[group] = nlohmann::json::object();
    for (const auto& [name, tensor] : tensors) {
      nlohmann::json pieces = nlohmann::json::array();
      for (const PieceInFile& piece : tensor.pieces) pieces.push_back(json_of(piece));
      json[name] = {
          {"dtype", name_of_dtype(tensor.whole.dtype, name)}, {"shape", tensor.whole.shape}, {"pieces", pieces}};
      if (!tensor.whole.order.empty()) json[name]["order"] = tensor.whole.order;
    }
  }
  return groups;
}

void parse_pieces(const ManifestFields& fields, const std::string& source, Coverage coverage, Manifest& manifest) {
  for (const auto& [group, tensors] : fields.map("pieces").items()) {
    if (!is_file_name(group)) fields.refuse("pieces", "names of groups in it");
    if (!tensors.is_object()) fields.refuse("pieces", "maps of tensors in it");
    auto& read = manifest.pieces[group];
    for (const auto& [name, tree] : tensors.items()) {
      read[name] = tensor_of(tree, c10::str("pieces.", group, ".", name), source, coverage, manifest);
    }
  }
}

}  // namespace cohort
