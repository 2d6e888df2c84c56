#include "wings/mesh/models/mesh_flags.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/extension.h"
#include "base/fail.h"
#include "base/number_in.h"
#include "cluster/local_place.h"
#include "cohort/cluster/cluster_resolver.h"
#include "cohort/cluster/multi_worker_mesh.h"
#include "models/command/exchange_flags.h"
#include "models/command/mesh_makers.h"
#include "models/command/security_flags.h"
#include "models/command/sharding_flags.h"
#include "models/command/strategy_table.h"

namespace cohort {

namespace {

constexpr std::string_view kRing = "ring";
constexpr std::string_view kSequenceAxis = "sequence";  // the axis that divides tokens
constexpr int kMostOnAxis = 1024;
constexpr int64_t kMostPlaces = 65'536;  // on all axes

// The axes that --mesh names.
struct MeshFlag {
  std::vector<int> sizes;
  std::vector<std::string> names;
};

MeshFlag mesh_of(const StrategyFlags& flags) {
  MeshFlag mesh;
  int64_t places = 1;
  std::istringstream parts(*flags.mesh);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t sign = part.find('=');
    if (sign == 0 || sign == std::string::npos) {
      fail<InvalidArgument>("[train] --mesh=", flags.mesh, ": \"", part, "\" is no axis, wanted batch=2,model=2");
    }
    const std::string name = part.substr(0, sign), text = part.substr(sign + 1);
    const std::optional<int> size = parse_int(text);
    if (!size || *size < 1 || *size > kMostOnAxis) {
      fail<InvalidArgument>("[train] --mesh=", flags.mesh, ": the axis ", name, " has the size ", text,
                            ", wanted 1 to ", kMostOnAxis);
    }
    if (std::find(mesh.names.begin(), mesh.names.end(), name) != mesh.names.end()) {
      fail<InvalidArgument>("[train] --mesh=", flags.mesh, ": two axes have the name ", name, ", wanted one of each");
    }
    mesh.names.push_back(name);
    mesh.sizes.push_back(*size);
    places *= *size;
    if (places > kMostPlaces) {
      fail<InvalidArgument>("[train] --mesh=", flags.mesh, ": the axes have more than ", kMostPlaces,
                            " places, wanted sizes whose product is that or less");
    }
  }
  return mesh;
}

// The flag says the devices of a process: as many CPUs as its part of the mesh has places, unless the user says so.
std::vector<std::string> devices_here(const StrategyFlags& flags, const std::vector<std::string>& asked, int places,
                                      int workers) {
  if (flags.num_gpus == 0 && flags.num_replicas == 0 && places % workers == 0) {
    if (places / workers <= kMostReplicas) return cpu_devices(places / workers);
    fail<InvalidArgument>("[train] --mesh=", flags.mesh, " has ", places / workers,
                          " places in a process, wanted axes whose sizes multiply to ", kMostReplicas,
                          " or less for each process");
  }
  if (static_cast<int>(asked.size()) * workers == places) return asked;
  const bool gpus = flags.num_gpus > 0;
  fail<InvalidArgument>("[train] --mesh=", flags.mesh, " has ", places, " places, but ",
                        workers == 1 ? "there are " : c10::str(workers, " workers have "), asked.size(),
                        workers == 1 ? "" : " each", " by ", gpus ? "--num_gpus" : "--num_replicas",
                        places % workers == 0
                            ? c10::str("; ", places / workers, " would fit")
                            : c10::str("; a mesh whose number of places is a multiple of ", workers, " would fit"));
}

// Returns the GPUs of a worker, where every machine has as many workers as this one, whose ranks follow each other.
std::vector<std::string> gpus_of_rank(int rank, std::size_t count, const LocalPlace& place) {
  const auto visible = static_cast<int>(list_logical_devices("GPU").size());
  std::vector<std::string> names;
  const LocalPlace its{.rank = rank % std::max(place.size, 1), .size = place.size};
  for (const int gpu : gpus_of_worker(visible, static_cast<int>(count), its)) names.push_back(c10::str("/GPU:", gpu));
  return names;
}

int places_of(const MeshFlag& mesh) {
  int places = 1;
  for (const int size : mesh.sizes) places *= size;
  return places;
}

SequenceAttention attention_of(const StrategyFlags& flags) {
  return *flags.sequence_attention == kRing ? SequenceAttention::kRing : SequenceAttention::kUlysses;
}

MeshOptions options_of(const StrategyFlags& flags, const ExchangeOptions& exchange) {
  return {.layout = flags.layout,
          .sequence_parallel = flags.sequence_parallel,
          .exchange = exchange,
          .sharding = sharding_of(flags),
          .input_partition_dims = flags.input_partition_dims,
          .eval_input_partition_dims = flags.eval_input_partition_dims,
          .attention = attention_of(flags)};
}

// Returns the mesh on as many CPUs as it has places: those of the run come later; here they give the axes their places.
DeviceMesh axes_of(const StrategyFlags& flags) {
  const MeshFlag mesh = mesh_of(flags);
  std::vector<std::string> devices;
  for (int i = 0; i < places_of(mesh); ++i) devices.push_back("/CPU:" + std::to_string(i));
  return DeviceMesh(mesh.sizes, mesh.names, devices);
}

// Returns the names of the axes that divide parameters.
std::vector<std::string> dividing_axes(const DeviceMesh& mesh) {
  std::vector<std::string> names;
  for (const Axis& axis : mesh.axes()) {
    if (axis.role == AxisRole::kModel) names.push_back(axis.name);
  }
  return names;
}

void require_sequence(const StrategyFlags& flags) {
  if (*flags.sequence_attention == kRing) return;
  if (*flags.sequence_attention != "ulysses") {
    fail<InvalidArgument>("[train] --sequence_attention=", flags.sequence_attention, ", wanted ring or ulysses");
  }
  const std::vector<std::string> names = mesh_of(flags).names;
  if (std::find(names.begin(), names.end(), kSequenceAxis) != names.end()) return;
  fail<InvalidArgument>("[train] --sequence_attention=", flags.sequence_attention,
                        " has no meaning without an axis sequence in --mesh");
}

// Along an axis of positions tokens are in equal parts; images are in those that the task says.
void require_parts(const StrategyFlags& flags) {
  if (flags.mesh->empty() || !flags.input_partition_dims.empty() || !flags.eval_input_partition_dims.empty()) return;
  const DeviceMesh mesh = axes_of(flags);
  for (const Axis& axis : mesh.axes()) {
    if (axis.role != AxisRole::kSpace || axis.name == kSequenceAxis || is_evaluator(flags)) continue;
    fail<InvalidArgument>(
        "[train] --mesh=", flags.mesh, ": the axis ", axis.name, " divides images into the parts of ",
        "task.train_input_partition_dims (with --mode=eval task.eval_input_partition_dims), which is ",
        "empty, wanted parts whose product is ", axis.size, "; an axis sequence divides tokens");
  }
}

// Returns the maker of meshes with an axis that divides layers, or null: this one has none.
const StageMaker* stage_maker(const StrategyFlags& flags, const DeviceMesh& mesh) {
  const bool has_stages = std::any_of(mesh.axes().begin(), mesh.axes().end(),
                                      [](const Axis& axis) { return axis.role == AxisRole::kStage; });
  if (!has_stages) return nullptr;
  if (!extensions<StageMaker>().empty()) return &extensions<StageMaker>().front();
  fail_without("pipeline", "[train] --mesh=", flags.mesh, " has an axis of stages");
}

void refuse_stages(const StrategyFlags& flags) {
  for (const StageMaker& maker : extensions<StageMaker>()) maker.refuse(flags);
}

void check_mesh(const StrategyFlags& flags, const StrategyRow& /*row*/) {
  require_sequence(flags);
  require_parts(flags);
  using Flag = std::pair<const char*, bool>;
  for (const auto& [name, is_set] :
       {Flag("sequence_parallel", flags.sequence_parallel), Flag("vocab_parallel", flags.vocab_parallel),
        Flag("mlp_parallel", flags.mlp_parallel)}) {
    if (!is_set || (!flags.mesh->empty() && !dividing_axes(axes_of(flags)).empty())) continue;
    fail<InvalidArgument>("[train] --", name,
                          "=true has no meaning without an axis that divides parameters in --mesh,"
                          " such as model=2");
  }
}

void take_layout(StrategyFlags& flags, const Task& task) {
  const DeviceMesh mesh = axes_of(flags);
  const std::vector<std::string> dividing = dividing_axes(mesh);
  if (dividing.size() > 1) {
    fail<InvalidArgument>("[train] --mesh=", flags.mesh, ": both ", dividing[0], " and ", dividing[1],
                          " divide parameters, which the layouts of experiments do along one axis");
  }
  if (!dividing.empty()) {
    const MeshCuts cuts{.vocabulary = flags.vocab_parallel, .mlps = flags.mlp_parallel};
    flags.layout = task.mesh_layout(dividing.front(), cuts);
    if (flags.layout.entries().empty()) {
      fail<InvalidArgument>("[task] the mesh is to divide parameters along \"", dividing.front(),
                            "\", but there is a layout only for language models, masked ones too, recommenders and ",
                            "vision transformers (task.model.backbone.type vit); a mesh whose axes carry the batch ",
                            "would fit");
    }
  }
  const bool has_parts = !flags.input_partition_dims.empty() || !flags.eval_input_partition_dims.empty();
  for (const Axis& axis : mesh.axes()) {
    if (axis.name == kSequenceAxis && !has_parts) task.check_sequence(axis.name);
  }
  if (const StageMaker* maker = stage_maker(flags, mesh)) maker->take_cut(flags, task, mesh);
}

Strategy make_mesh(const StrategyFlags& flags, const std::vector<std::string>& devices,
                   const ExchangeOptions& exchange) {
  const MeshFlag mesh = mesh_of(flags);
  const DeviceMesh made(mesh.sizes, mesh.names, devices_here(flags, devices, places_of(mesh), 1));
  if (const StageMaker* maker = stage_maker(flags, made)) return maker->make(flags, made, exchange);
  refuse_stages(flags);
  return MeshStrategy(made, options_of(flags, exchange));
}

Strategy make_mesh_of_workers(const StrategyFlags& flags, const std::vector<std::string>& devices,
                              const ExchangeOptions& exchange) {
  const MeshFlag mesh = mesh_of(flags);
  const ClusterResolverPtr resolver = resolve_cluster();
  const ClusterSpec cluster = resolver->cluster_spec();
  std::vector<TaskId> tasks;
  for (const char* job : {"chief", "worker"}) {
    if (!cluster.has_job(job)) continue;
    for (const auto& [index, host] : cluster.jobs().at(job)) tasks.push_back({.type = job, .index = index});
  }
  if (tasks.size() < 2) return make_mesh(flags, devices, exchange);
  const auto own = devices_here(flags, devices, places_of(mesh), static_cast<int>(tasks.size()));
  std::vector<std::string> all;
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    const std::vector<std::string> names =
        flags.num_gpus > 0 ? gpus_of_rank(static_cast<int>(rank), own.size(), local_place()) : own;
    if (tasks[rank] == resolver->task() && names != own) {
      fail<InvalidArgument>("[train] --mesh=", flags.mesh, " with --num_gpus=", flags.num_gpus, ": worker ", rank,
                            " has the local rank ", local_place().rank, " of ", local_place().size, ", wanted ",
                            "workers whose ranks follow each other on every machine, as many on each");
    }
    for (const std::string& name : names) {
      all.push_back(c10::str("/job:", tasks[rank].type, "/task:", tasks[rank].index, name));
    }
  }
  const DeviceMesh made(mesh.sizes, mesh.names, all);
  const ClusterOptions members{
      .resolver = resolver, .communication = communication_of(flags), .membership = membership_of(flags)};
  ExchangeOptions within = exchange;  // a worker
  within.cross_device_ops = "auto";
  if (const StageMaker* maker = stage_maker(flags, made)) return maker->make_of_workers(flags, made, within, members);
  refuse_stages(flags);
  return MultiWorkerMeshStrategy(made, options_of(flags, within), members);
}

void describe_mesh(StrategyFlags& flags, ConfigFields& fields) {
  fields
      .add("mesh", flags.mesh,
           "axes that the replicas of mirrored, or those of all workers of multi_worker_mirrored, are laid out on, "
           "such as "
           "batch=2,model=2: batch carries the examples, model divides the parameters of a transformer or a "
           "recommender, sequence the tokens of each example, space the rows and columns of images, as "
           "task.train_input_partition_dims says, stage the layers of a model; empty: batch alone")
      .flag = "--mesh";
  fields
      .add("sequence_attention", flags.sequence_attention,
           "how tokens attend to those of other replicas along the axis sequence of the mesh: ring, where keys and "
           "values go around, or ulysses, where each replica gets all tokens of some heads")
      .flag = "--sequence_attention";
  fields
      .add("sequence_parallel", flags.sequence_parallel,
           "whether the replicas along the axis model of the mesh have some tokens each, instead of all, of what lies "
           "between the products of a transformer: norms, dropout and sums")
      .flag = "--sequence_parallel";
  fields
      .add("vocab_parallel", flags.vocab_parallel,
           "whether the axis model of the mesh divides the vocabulary, too: the embeddings and logits of a language "
           "model, or the rows of a recommender's tables instead of their columns")
      .flag = "--vocab_parallel";
  fields
      .add("mlp_parallel", flags.mlp_parallel,
           "whether the axis model of the mesh divides the dense layers of a recommender, too, by columns and rows in "
           "turn; else its replicas have them whole")
      .flag = "--mlp_parallel";
}

}  // namespace

FlagsOfWing mesh_flags() {
  return {.place = FlagPlace::kLayout, .describe = describe_mesh, .check = check_mesh};
}

MeshMaker make_meshes() {
  return {.take_layout = take_layout, .make = make_mesh, .make_of_workers = make_mesh_of_workers};
}

}  // namespace cohort
