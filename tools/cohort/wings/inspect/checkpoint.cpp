// cohort checkpoint: looks into checkpoints, compares two of them, and makes one file of weights of one.
#include <ATen/Functions.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <set>

#include "base/fail.h"
#include "checkpoint/reader.h"
#include "checkpoint/series.h"
#include "checkpoint/stream_weights.h"
#include "cohort/checkpoint.h"
#include "wings/inspect/inspect.h"

namespace cohort::cli {

namespace {

struct CheckpointFlags {
  std::string what;
  std::vector<std::filesystem::path> places;
  std::string name = CheckpointManagerOptions().name;
  std::string group = "model";
  std::filesystem::path output;
  double tolerance = 0.0;
};

// Returns the folder of a checkpoint: the place itself, or the newest one of a directory of them.
std::filesystem::path folder_at(const std::filesystem::path& place, const std::string& name) {
  if (std::filesystem::exists(place / "manifest.json")) return place;
  const std::vector<int64_t> steps = checkpoint_steps(place, name);
  if (steps.empty()) {
    fail<NotFound>("[checkpoint] ", place.string(), " is no checkpoint, and has none that is called ", name,
                   "-STEP; --name says how they are called");
  }
  return place / c10::str(name, "-", steps.back());
}

std::string kind_of(const WholeTensor& tensor) {
  return c10::str(tensor.dtype, c10::IntArrayRef(tensor.shape));
}

// Says which elements a piece has, as they are counted in the whole.
std::string text_of(const Runs& runs) {
  const std::string first = fmt::format("{} to {}", runs.offset, runs.offset + runs.length - 1);
  if (runs.count == 1) return "elements " + first;
  return fmt::format("elements {} and so on, {} runs of {} in steps of {}", first, runs.count, runs.length,
                     runs.stride);
}

void print_tensor(const std::string& name, const TensorInPieces& tensor, bool in_pieces) {
  std::cout << "            " << name << "  " << kind_of(tensor.whole);
  if (!tensor.whole.order.empty()) std::cout << ", counted along " << c10::IntArrayRef(tensor.whole.order);
  std::cout << "\n";
  for (const PieceInFile& piece : tensor.pieces) {
    if (!in_pieces) continue;
    std::cout << "              " << piece.file << ": " << (tensor.pieces.size() == 1 ? "whole" : text_of(piece.runs))
              << "\n";
  }
}

void print_info(const CheckpointReader& checkpoint) {
  const Manifest& manifest = checkpoint.manifest();
  std::cout << "checkpoint  " << checkpoint.folder().string() << "\nstep        " << manifest.step << "\n";
  for (const auto& [key, value] : manifest.values) std::cout << "value       " << key << ": " << value << "\n";
  for (const std::string& group : checkpoint.groups()) {
    const auto tensors = checkpoint.places(group);
    std::size_t bytes = 0;
    std::set<std::string> files;
    for (const auto& [name, tensor] : tensors) {
      bytes += static_cast<std::size_t>(elements_in(tensor.whole.shape)) * c10::elementSize(tensor.whole.dtype);
      for (const PieceInFile& piece : tensor.pieces) files.insert(piece.file);
    }
    const bool in_pieces = checkpoint.in_pieces(group);
    std::cout << "tensors     " << group << ": " << tensors.size() << " of " << bytes << " bytes"
              << (in_pieces ? fmt::format(", in the shards of {} workers", files.size()) : "") << "\n";
    for (const auto& [name, tensor] : tensors) print_tensor(name, tensor, in_pieces);
  }
  for (const std::string& name : checkpoint.names_of_bytes()) {
    std::cout << "bytes       " << name << ": " << checkpoint.bytes(name).size() << "\n";
  }
}

// Prints what differs between two checkpoints and counts it.
class Differences {
 public:
  Differences(const CheckpointReader& first, const CheckpointReader& second, double tolerance)
      : first_(first), second_(second), tolerance_(tolerance) {}

  int count() {
    const Manifest& first = first_.manifest();
    const Manifest& second = second_.manifest();
    if (first.step != second.step) note("step", c10::str(first.step, " and ", second.step));
    each_of(first.values, second.values, "value ",
            [&](const std::string& key, const std::string& a, const std::string& b) {
              if (a != b) note("value " + key, c10::str("\"", a, "\" and \"", b, "\""));
            });
    each_of(sources(first_), sources(second_), "tensors ",
            [&](const std::string& group, const Source& a, const Source& b) { compare_groups(group, *a, *b); });
    each_of(bytes_of(first_), bytes_of(second_), "bytes ",
            [&](const std::string& name, const std::string& a, const std::string& b) {
              if (a != b) note("bytes " + name, c10::str(a.size(), " and ", b.size(), " bytes that differ"));
            });
    if (count_ == 0) std::cout << "the same: " << compared_ << " tensors\n";
    return count_;
  }

 private:
  template <typename Map, typename Compare>
  void each_of(const Map& first, const Map& second, const std::string& prefix, const Compare& compare) {
    for (const auto& [name, value] : first) {
      const auto other = second.find(name);
      if (other == second.end()) {
        note(prefix + name, "only in the first");
      } else {
        compare(name, value, other->second);
      }
    }
    for (const auto& [name, value] : second) {
      if (!first.contains(name)) note(prefix + name, "only in the second");
    }
  }

  using Source = std::shared_ptr<TensorSource>;
  static std::map<std::string, Source> sources(const CheckpointReader& checkpoint) {
    std::map<std::string, Source> all;
    for (const std::string& group : checkpoint.groups()) all[group] = checkpoint.group(group);
    return all;
  }
  static std::map<std::string, std::string> bytes_of(const CheckpointReader& checkpoint) {
    std::map<std::string, std::string> all;
    for (const std::string& name : checkpoint.names_of_bytes()) all[name] = checkpoint.bytes(name);
    return all;
  }

  // One tensor of each is in memory at a time.
  void compare_groups(const std::string& group, const TensorSource& first, const TensorSource& second) {
    const auto wholes = [](const TensorSource& source) {
      std::map<std::string, WholeTensor> all;
      for (const std::string& name : source.names()) all[name] = *source.find(name);
      return all;
    };
    each_of(wholes(first), wholes(second), group + "/",
            [&](const std::string& name, const WholeTensor& a, const WholeTensor& b) {
              ++compared_;
              if (a.shape != b.shape || a.dtype != b.dtype)
                return note(group + "/" + name, kind_of(a) + " and " + kind_of(b));
              compare(group + "/" + name, first.read_whole(name), second.read_whole(name));
            });
  }

  void compare(const std::string& name, const torch::Tensor& first, const torch::Tensor& second) {
    const auto wide = [](const torch::Tensor& tensor) { return tensor.to(torch::kDouble); };
    const torch::Tensor same =
        at::isclose(wide(first), wide(second), /*rtol=*/0.0, /*atol=*/tolerance_, /*equal_nan=*/true);
    const auto differ = first.numel() - same.sum().item<int64_t>();
    if (differ == 0) return;
    const auto most = (wide(first) - wide(second)).abs().max().item<double>();
    note(name, fmt::format("{} of {} elements differ, by up to {:.6g}", differ, first.numel(), most));
  }

  void note(const std::string& what, const std::string& how) {
    ++count_;
    std::cout << what << ": " << how << "\n";
  }

  const CheckpointReader& first_;
  const CheckpointReader& second_;
  double tolerance_;
  int count_ = 0;
  int compared_ = 0;
};

void consolidate(const CheckpointReader& checkpoint, const CheckpointFlags& flags) {
  const auto group = checkpoint.group(flags.group);
  const int64_t step = checkpoint.manifest().step;
  stream_weights(flags.output, *group, {{"format", "pt"}, {"step", std::to_string(step)}});
  std::cout << "consolidated  " << group->names().size() << " tensors: " << flags.output.string() << "\n";
}

int run_checkpoint(const CheckpointFlags& flags) {
  const std::size_t wanted = flags.what == "diff" ? 2 : 1;
  if (flags.places.size() != wanted) {
    fail<InvalidArgument>("[checkpoint] ", flags.what, " takes ", wanted, " checkpoint", wanted == 1 ? "" : "s",
                          ", got ", flags.places.size());
  }
  if ((flags.what == "consolidate") == flags.output.empty()) {
    fail<InvalidArgument>("[checkpoint] --output names the file that consolidate writes, ",
                          flags.output.empty() ? "and is missing" : "and " + flags.what + " writes none");
  }
  std::vector<CheckpointReader> read;
  for (const std::filesystem::path& place : flags.places) {
    read.emplace_back(folder_at(place, flags.name));
    read.back().check();
  }
  if (flags.what == "diff") return Differences(read[0], read[1], flags.tolerance).count() == 0 ? 0 : 1;
  flags.what == "info" ? print_info(read[0]) : consolidate(read[0], flags);
  return 0;
}

}  // namespace

Command add_checkpoint(CLI::App& app) {
  const auto flags = std::make_shared<CheckpointFlags>();
  app.add_option(
         "what", flags->what,
         "info: prints what is in a checkpoint; diff: what differs between two; consolidate: makes a file of weights")
      ->required()
      ->check(CLI::IsMember({"info", "diff", "consolidate"}));
  app.add_option("checkpoint", flags->places, "folder of a checkpoint, or of several, of which the newest counts")
      ->required();
  app.add_option("--name", flags->name, "how the checkpoints of such a folder are called: NAME-STEP")
      ->capture_default_str();
  app.add_option("--group", flags->group, "the tensors that consolidate takes")->capture_default_str();
  app.add_option("--output", flags->output, "the file of weights that consolidate writes");
  app.add_option("--tolerance", flags->tolerance, "by how much elements may differ")->capture_default_str();
  return [flags] { return run_checkpoint(*flags); };
}

}  // namespace cohort::cli
