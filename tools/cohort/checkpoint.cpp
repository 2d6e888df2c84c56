// cohort checkpoint: looks into checkpoints, compares two of them, and makes one file of weights of one.
#include <ATen/Functions.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <memory>

#include "base/fail.h"
#include "checkpoint/series.h"
#include "cohort/checkpoint.h"
#include "cohort/weights.h"
#include "commands.h"

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

std::string kind_of(const torch::Tensor& tensor) {
  return c10::str(tensor.scalar_type(), tensor.sizes());
}

void print_info(const SavedCheckpoint& checkpoint) {
  std::cout << "checkpoint  " << checkpoint.folder.string() << "\nstep        " << checkpoint.step << "\n";
  for (const auto& [key, value] : checkpoint.data.values) std::cout << "value       " << key << ": " << value << "\n";
  for (const auto& [group, tensors] : checkpoint.data.tensors) {
    std::size_t bytes = 0;
    for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
    std::cout << "tensors     " << group << ": " << tensors.size() << " of " << bytes << " bytes\n";
    const std::map<std::string, torch::Tensor> sorted(tensors.begin(), tensors.end());
    for (const auto& [name, tensor] : sorted) std::cout << "            " << name << "  " << kind_of(tensor) << "\n";
  }
  for (const auto& [name, bytes] : checkpoint.data.bytes) {
    std::cout << "bytes       " << name << ": " << bytes.size() << "\n";
  }
}

// Prints what differs between two checkpoints and counts it.
class Differences {
 public:
  Differences(const SavedCheckpoint& first, const SavedCheckpoint& second, double tolerance)
      : first_(first), second_(second), tolerance_(tolerance) {}

  int count() {
    if (first_.step != second_.step) note("step", c10::str(first_.step, " and ", second_.step));
    each_of(first_.data.values, second_.data.values, "value ",
            [&](const std::string& key, const std::string& a, const std::string& b) {
              if (a != b) note("value " + key, c10::str("\"", a, "\" and \"", b, "\""));
            });
    each_of(first_.data.tensors, second_.data.tensors, "tensors ",
            [&](const std::string& group, const NamedTensors& a, const NamedTensors& b) {
              each_of(std::map(a.begin(), a.end()), std::map(b.begin(), b.end()), group + "/",
                      [&](const std::string& name, const torch::Tensor& x, const torch::Tensor& y) {
                        compare(group + "/" + name, x, y);
                      });
            });
    each_of(first_.data.bytes, second_.data.bytes, "bytes ",
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

  void compare(const std::string& name, const torch::Tensor& first, const torch::Tensor& second) {
    ++compared_;
    if (first.sizes() != second.sizes() || first.scalar_type() != second.scalar_type()) {
      return note(name, kind_of(first) + " and " + kind_of(second));
    }
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

  const SavedCheckpoint& first_;
  const SavedCheckpoint& second_;
  double tolerance_;
  int count_ = 0;
  int compared_ = 0;
};

void consolidate(const SavedCheckpoint& checkpoint, const CheckpointFlags& flags) {
  const auto group = checkpoint.data.tensors.find(flags.group);
  if (group == checkpoint.data.tensors.end()) {
    std::string names;
    for (const auto& [name, tensors] : checkpoint.data.tensors) names += (names.empty() ? "" : ", ") + name;
    fail<NotFound>("[checkpoint] ", checkpoint.folder.string(), " has no tensors \"", flags.group, "\", only ", names);
  }
  save_weights(flags.output, group->second, {{"format", "pt"}, {"step", std::to_string(checkpoint.step)}});
  std::cout << "consolidated  " << group->second.size() << " tensors: " << flags.output.string() << "\n";
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
  std::vector<SavedCheckpoint> read;
  for (const std::filesystem::path& place : flags.places) read.push_back(read_checkpoint(folder_at(place, flags.name)));
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
