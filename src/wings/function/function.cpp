#include "cohort/function.h"

#include <atomic>
#include <iomanip>
#include <ostream>
#include <sstream>

#include "base/access.h"
#include "base/extension.h"
#include "base/fail.h"
#include "base/log.h"
#include "strategy/combinations.h"
#include "strategy/context.h"
#include "wings/function/captured.h"
#include "wings/function/device/graph_capture.h"
#include "wings/function/state.h"

namespace cohort {

namespace {

std::atomic<bool> eager = false;
thread_local int calls_within = 0;  // functions that this thread is in

class Within {
 public:
  Within() { ++calls_within; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
  ~Within() { --calls_within; }
};

// Those of all functions of one code, as a function that is made anew in a loop is retraced in each.
struct Detectors {
  std::mutex mutex;
  std::map<std::string, RetracingDetector> of;
};

Detectors& detectors() {
  static Detectors all;
  return all;
}

const FunctionProgram& program_of(const ConcreteFunctionState& state) {
  if (state.program == nullptr)
    fail<Unimplemented>("[function] ", state.signature, " has no program: ", state.why_none);
  return *state.program;
}

}  // namespace

void run_functions_eagerly(bool run_eagerly) {
  eager = run_eagerly;
}

bool functions_run_eagerly() {
  return eager;
}

const std::string& ConcreteFunction::signature() const {
  return state_->signature;
}

std::string ConcreteFunction::text() const {
  return program_of(*state_).text(state_->name);
}

FunctionCost ConcreteFunction::cost() const {
  if (const std::optional<FunctionCost> cost = program_of(*state_).cost()) return *cost;
  fail<FailedPrecondition>("[function] the cost of ", state_->signature,
                           " was asked for, but no plugin is open to compile it");
}

std::ostream& operator<<(std::ostream& out, const ConcreteFunction& function) {
  out << function.signature() << '\n';
  const std::shared_ptr<const FunctionProgram>& program = Access::state(function)->program;
  if (program == nullptr) return out;
  if (const std::optional<FunctionCost> cost = program->cost()) {
    if (cost->flops) out << "floating-point operations: " << *cost->flops << '\n';
    if (cost->bytes_accessed) out << "bytes read and written: " << *cost->bytes_accessed << '\n';
    if (cost->peak_bytes) out << "most memory at one time: " << *cost->peak_bytes << " bytes\n";
  }
  return out << function.text();
}

namespace detail {

std::string function_number(double value) {
  std::ostringstream out;
  out << std::setprecision(17) << value;
  return out.str();
}

std::shared_ptr<FunctionState> make_function_state(FunctionOptions options, const std::string& key) {
  return std::make_shared<FunctionState>(std::move(options), key);
}

void call_function(FunctionState& state, FunctionCall& call) {
  state.call(call);
}

ConcreteFunction concrete_function(FunctionState& state, FunctionCall& call) {
  return state.concrete(call);
}

int64_t tracing_count(const FunctionState& state) {
  return state.tracing_count();
}

void set_joint(FunctionState& state) {
  state.set_joint();
}

std::vector<std::string> signatures(const FunctionState& state) {
  return state.signatures();
}

FunctionState::FunctionState(FunctionOptions options, std::string key)
    : options_(std::move(options)), captured_(std::make_shared<CapturedFunction>(options_)), key_(std::move(key)) {
  for (const RecordedFunctionMaker& maker : extensions<RecordedFunctionMaker>()) recorded_ = maker.make(options_);
  if (options_.input_signature) check_specs(*options_.input_signature, options_.name);
  if (options_.kept_signatures >= 1) return;
  fail<InvalidArgument>("[function] ", options_.name, ": kept_signatures is ", options_.kept_signatures,
                        ", wanted 1 or more");
}

RecordedFunction& FunctionState::recorded() const {
  if (recorded_) return *recorded_;
  fail_without("xla", "[function] ", options_.name, " is recorded on XLA's devices");
}

void FunctionState::set_joint() {
  joint_ = true;
  key_ += c10::str(' ', this);
}

int64_t FunctionState::tracing_count() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int64_t>(table_.size());
}

std::vector<std::string> FunctionState::signatures() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < table_.size(); ++i) texts.push_back(options_.name + "(" + to_string(table_[i]) + ")");
  return texts;
}

// Refuses what the options forbid, and widens the signature to the input_signature.
void FunctionState::check(FunctionCall& call, FunctionArguments& arguments) const {
  const bool has_graphs = arguments.captures && !arguments.records;
  if (arguments.of_replicas && options_.jit_compile.value_or(false)) {
    fail<InvalidArgument>("[function] ", options_.name,
                          ": jit_compile is true, but there are per-replica values among ",
                          "the arguments; set it for the function that run() is given");
  }
  if (options_.jit_compile && *options_.jit_compile != arguments.records && !has_graphs) {
    fail<InvalidArgument>(
        "[function] ", options_.name, ": jit_compile is ", *options_.jit_compile ? "true" : "false", ", but on ",
        arguments.device,
        arguments.records ? " all work is compiled" : " nothing is compiled: the device does not record",
        "; leave it unset");
  }
  if (has_graphs && options_.jit_compile.value_or(false) && thread_context().replica_scope != nullptr) {
    require_pair(c10::str("[function] ", options_.name, ":"), {.feature = kGraphs, .said = "jit_compile is true"},
                 {.feature = kPipeline, .said = "a stage of a pipeline calls the function"});
  }
  if (options_.input_signature) {
    fit(
        arguments.signature, *options_.input_signature, [&](std::size_t i) { return place_of(call, i); },
        options_.name);
  }
}

// Returns whether the signature is new, and adds it then.
bool FunctionState::enter(const FunctionArguments& arguments, std::string& difference) {
  const std::scoped_lock lock(mutex_);
  if (table_.find(arguments.signature)) return false;
  difference = table_.size() == 0 ? "this function has been made newly"
                                  : cohort::difference(table_[table_.size() - 1], arguments.signature);
  const bool relaxes = options_.reduce_retracing && !options_.input_signature;
  table_.add(relaxes ? table_.relaxed_with_known(arguments.signature) : arguments.signature);
  kept_.insert(kept_.end(), arguments.objects.begin(), arguments.objects.end());
  return true;
}

void FunctionState::note_tracing(bool is_new, const std::string& difference) const {
  if (calls_within > 0) return;  // the outer function is what is called
  Detectors& all = detectors();
  const std::scoped_lock lock(all.mutex);
  RetracingDetector& own = all.of[key_];
  if (!is_new) {
    own.called_without_tracing();
    return;
  }
  const std::string warning = own.called_with_tracing(options_.name, difference);
  if (!warning.empty()) cohort::log().warn("{}", warning);
}

void FunctionState::call(FunctionCall& call) {
  if (eager) {
    call.run();
    return;
  }
  FunctionArguments arguments = arguments_of(call, options_.name);
  check(call, arguments);
  {
    const Within within;
    // Within a function that is being recorded or captured, this one is a part of it.
    if (arguments.records) {
      recorded().call(call, arguments, joint_);
    } else if (arguments.captures && options_.jit_compile.value_or(false) && GraphCapture::current() == nullptr) {
      captured_->call(call, arguments);
    } else {
      call.run();
    }
  }
  std::string difference;
  const bool is_new = enter(arguments, difference);
  note_tracing(is_new, difference);
}

ConcreteFunction FunctionState::concrete(FunctionCall& call) {
  FunctionArguments arguments = arguments_of(call, options_.name);
  check(call, arguments);
  auto state = std::make_shared<ConcreteFunctionState>();
  state->name = options_.name;
  state->signature = options_.name + "(" + to_string(arguments.signature) + ")";
  if (arguments.of_replicas) {
    state->why_none = "there are per-replica values among the arguments; the function that run() is given has one";
  } else if (!arguments.records) {
    state->why_none = c10::str(arguments.device, " does not record; the function runs there ",
                               options_.jit_compile.value_or(false) ? "as a graph of the device's" : "as it is");
  } else {
    state->program = recorded().program(call, arguments);
  }
  std::string difference;
  enter(arguments, difference);
  return Access::make<ConcreteFunction>(std::shared_ptr<const ConcreteFunctionState>(std::move(state)));
}

}  // namespace detail

}  // namespace cohort
