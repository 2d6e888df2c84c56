#include "checkpoint/wholes_on_chief.h"

#include <ATen/Functions.h>

#include <optional>

#include "base/access.h"
#include "base/atomic_file.h"
#include "base/fail.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shards.h"
#include "device/host_memory.h"
#include "strategy/module_pieces.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

constexpr const char* kGroup = "model";
constexpr const char* kWhat = "save_weights";

// Returns the place of runs of elements in all of them.
torch::Tensor place_of(const Runs& runs, const torch::Tensor& flat) {
  if (runs.count == 1) return flat.narrow(0, runs.offset, runs.length);
  return flat.as_strided({runs.count, runs.length}, {runs.stride, 1}, runs.offset);
}

}  // namespace

WholesOnChief::WholesOnChief(const MirroredModule& module) : core_(Access::core(module)) {
  Manifest note;
  const std::string place = c10::str("worker-", core_->worker_rank());
  note.files[place] = {};
  for (TensorPiece& piece : pieces_of(module, Commons::kByChief)) {
    TensorInPieces& noted = note.pieces[kGroup][piece.name];
    noted.whole = piece.whole;
    noted.pieces.push_back({.file = place, .entry = piece.name, .runs = piece.runs});
    own_[piece.name].push_back(std::move(piece));
  }
  Manifest all;
  for (const std::string& text : core_->gather_texts(to_json(note))) {
    const std::string who =
        c10::str("what ", core_->workers().world().rank_name(static_cast<int>(notes_.size())), " has");
    notes_.push_back(parse_manifest(text, who, Coverage::kSome));
    add_note(notes_.back(), all);
  }
  all_ = std::move(all.pieces[kGroup]);
  for (const auto& [name, tensor] : all_) {
    int64_t left = elements_in(tensor.whole.shape);
    for (const PieceInFile& piece : tensor.pieces) left -= piece.runs.size();
    if (left != 0) {
      fail<Internal>("[checkpoint] the workers' parts of ", name, " have ", left > 0 ? "fewer" : "more",
                     " elements than ", c10::IntArrayRef(tensor.whole.shape), ", by ", left > 0 ? left : -left);
    }
  }
}

NamedTensors WholesOnChief::shapes() const {
  NamedTensors list;
  for (const auto& [name, tensor] : all_) {
    list.emplace_back(name, at::empty(tensor.whole.shape, at::TensorOptions(tensor.whole.dtype).device(at::kMeta)));
  }
  return list;
}

void WholesOnChief::send_own(const std::string& name) const {
  const auto own = own_.find(name);
  if (own == own_.end()) return;
  for (const TensorPiece& piece : own->second) {
    core_->workers().world().send(piece.values.detach().to(at::kCPU).contiguous().view({-1}), {.rank = 0});
  }
}

torch::Tensor WholesOnChief::bring(const std::string& name) const {
  const torch::NoGradGuard no_grad;
  if (core_->worker_rank() > 0) {
    send_own(name);
    return {};
  }
  const WholeTensor& whole = all_.at(name).whole;
  const torch::Tensor flat = at::empty({elements_in(whole.shape)}, at::TensorOptions(whole.dtype));
  if (const auto own = own_.find(name); own != own_.end()) {
    for (const TensorPiece& piece : own->second) {
      const torch::Tensor place = place_of(piece.runs, flat);
      place.copy_(piece.values.detach().reshape(place.sizes()));
    }
  }
  for (std::size_t rank = 1; rank < notes_.size(); ++rank) {
    const auto group = notes_[rank].pieces.find(kGroup);
    if (group == notes_[rank].pieces.end()) continue;
    const auto theirs = group->second.find(name);
    if (theirs == group->second.end()) continue;
    for (const PieceInFile& piece : theirs->second.pieces) {
      const torch::Tensor place = place_of(piece.runs, flat);
      const torch::Tensor came =
          place.is_contiguous() ? place.view({-1}) : at::empty({piece.runs.size()}, flat.options());
      core_->workers().world().recv(came, {.rank = static_cast<int>(rank)});
      if (!place.is_contiguous()) place.copy_(came.view(place.sizes()));
    }
  }
  return in_shape(flat, whole);
}

void save_divided(const MirroredModule& module, const std::filesystem::path& file,
                  const std::map<std::string, std::string>& metadata) {
  const StrategyCore& core = *Access::core(module);
  const WholesOnChief wholes(module);
  const NamedTensors ordered = safetensors_order(wholes.shapes());
  std::optional<AtomicFile> out;
  core.on_chief(kWhat, [&] {
    const std::string header = safetensors_header(ordered, metadata);
    out.emplace(file);
    out->write(header);
  });
  // The workers agree after each tensor, so that a disk that is full ends all of them, and none waits for longer than a
  // tensor takes.
  for (const auto& [name, shape] : ordered) {
    const torch::Tensor whole = wholes.bring(name);
    core.on_chief(kWhat, [&] { out->write(host_bytes(whole.contiguous())); });
  }
  core.on_chief(kWhat, [&] { out->commit(); });
}

}  // namespace cohort
