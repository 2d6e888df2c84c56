// Launching a program. The checks before it are not a courtesy: XLA begins a program on every device by itself, and one
// that is refused on a single device leaves the others at their first collective, where they wait without an end.
#include <algorithm>

#include "base/fail.h"
#include "wings/xla/device/event.h"
#include "wings/xla/device/state.h"

namespace cohort {

namespace {

bool is_deleted(const XlaPlugin& plugin, pjrt::Buffer* buffer) {
  pjrt::BufferIsDeletedArgs args;
  args.buffer = buffer;
  plugin.call(&pjrt::Api::buffer_is_deleted, "PJRT_Buffer_IsDeleted", args);
  return args.is_deleted;
}

// The donated buffers of a launch. From take() on they are deleted, which also tells whether another launch, or another
// argument of this one, has them. Those of a launch that does not begin are given back.
class Donations {
 public:
  Donations() = default;
  Donations(const Donations&) = delete;
  Donations& operator=(const Donations&) = delete;
  ~Donations() {
    for (XlaBuffer::State* const state : taken_) state->deleted = false;
  }

  // Returns whether the buffer was there to be taken.
  bool take(XlaBuffer::State& state) {
    if (state.deleted.exchange(true)) return false;
    taken_.push_back(&state);
    return true;
  }
  bool has(const XlaBuffer::State& state) const {
    return std::find(taken_.begin(), taken_.end(), &state) != taken_.end();
  }
  // The launch has begun, and the buffers are gone. With `done` they are destroyed after it.
  void keep(const std::shared_ptr<XlaEvent::State>& done) {
    for (XlaBuffer::State* const state : taken_) state->taken = done;
    taken_.clear();
  }
  // The launch has failed: the plugin knows which buffers are gone.
  void ask(const XlaPlugin& plugin) {
    for (XlaBuffer::State* const state : taken_) state->deleted = is_deleted(plugin, state->buffer);
    taken_.clear();
  }

 private:
  std::vector<XlaBuffer::State*> taken_;
};

// One launch: its checks, and the lists that PJRT takes.
class CheckedLaunch {
 public:
  CheckedLaunch(const XlaExecutable::State& executable, const XlaLists& arguments)
      : executable_(executable), plugin_(executable.client->plugin()), signature_(executable.program->signature()) {
    check_counts(arguments);
    for (std::size_t slot = 0; slot < arguments.size(); ++slot) check_places(arguments[slot], slot);
    for (std::size_t slot = 0; slot < arguments.size(); ++slot) take_donated(arguments[slot], slot);
    for (std::size_t slot = 0; slot < arguments.size(); ++slot) check_there(arguments[slot], slot);
    for (const std::vector<XlaBuffer>& list : arguments) {
      std::vector<pjrt::Buffer*>& buffers = lists_.emplace_back();
      buffers.reserve(list.size());
      for (const XlaBuffer& buffer : list) buffers.push_back(buffer.state().buffer);
      if (signature_) continue;
      for (const XlaBuffer& buffer : list) states_.push_back(&buffer.state());
    }
  }

  XlaLaunch begin() {
    const std::size_t slots = lists_.size();
    std::vector<std::vector<pjrt::Buffer*>> outputs(
        slots, std::vector<pjrt::Buffer*>(static_cast<std::size_t>(executable_.program->num_outputs())));
    std::vector<pjrt::Event*> done(slots);
    const XlaClient::State& client = executable_.client->state();
    client.donated.destroy_taken(plugin_);
    execute(outputs, done);
    const auto end = std::make_shared<XlaEvent::State>(
        client.plugin, done, "the launch of " + executable_.program->name(), client.processes);
    donations_.keep(keeps_donated() ? end : nullptr);
    if (!signature_) ask_all();
    XlaLaunch launch;
    launch.done = XlaEvent(end);
    launch.outputs.resize(slots);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      for (std::size_t i = 0; i < outputs[slot].size(); ++i) {
        pjrt::Buffer* const buffer = outputs[slot][i];
        std::shared_ptr<const XlaShape> shape = signature_ ? executable_.outputs[i] : shape_of_buffer(plugin_, buffer);
        launch.outputs[slot].emplace_back(std::make_shared<XlaBuffer::State>(
            executable_.client, buffer, std::move(shape), executable_.slots[slot].device));
      }
    }
    return launch;
  }

 private:
  void execute(std::vector<std::vector<pjrt::Buffer*>>& outputs, std::vector<pjrt::Event*>& done) {
    std::vector<pjrt::Buffer* const*> in;
    std::vector<pjrt::Buffer**> out;
    for (const auto& list : lists_) in.push_back(list.data());
    for (auto& list : outputs) out.push_back(list.data());
    pjrt::ExecuteOptions options;
    pjrt::LoadedExecutableExecuteArgs args;
    args.executable = executable_.loaded.get();
    args.options = &options;
    args.argument_lists = in.data();
    args.num_devices = lists_.size();
    args.num_args = lists_.empty() ? 0 : lists_.front().size();
    args.output_lists = out.data();
    args.device_complete_events = done.data();
    std::unique_lock lock(executable_.client->state().launches, std::defer_lock);
    const bool with_others = is_of_several_processes();
    if (lists_.size() > 1 || with_others) lock.lock();
    if (with_others) options.launch_id = ++executable_.client->state().launches_with_others;
    try {
      plugin_.call(&pjrt::Api::loaded_executable_execute, "PJRT_LoadedExecutable_Execute", args);
    } catch (const Error&) {
      donations_.ask(plugin_);
      throw;
    }
  }

  // Returns whether donated buffers are destroyed when the launch is done, and not at once, which waits in XLA's plugin
  // for CPUs until the launch has taken their memory. There that wait is wanted for programs on several devices: they
  // share a few threads, and launches far ahead take these from replicas that others wait for.
  bool keeps_donated() const {
    const XlaProgram& program = *executable_.program;
    const bool on_one = program.num_replicas() == 1 && program.num_partitions() == 1;
    return on_one || executable_.client->platform() != "cpu";
  }

  // By the number of such a launch, runtimes find out that processes begin theirs in another order.
  bool is_of_several_processes() const {
    const XlaProgram& program = *executable_.program;
    return lists_.size() <
           static_cast<std::size_t>(program.num_replicas()) * static_cast<std::size_t>(program.num_partitions());
  }

  // Asks the plugin which arguments it took, where the signature does not say it.
  void ask_all() {
    for (XlaBuffer::State* const state : states_) state->deleted = is_deleted(plugin_, state->buffer);
  }

  std::string place(std::size_t slot, std::size_t argument) const {
    const XlaSlot& own = executable_.slots[slot];
    return c10::str(opening(), "argument ", argument, " of replica ", own.replica, ", partition ", own.partition);
  }
  std::string opening() const {
    return c10::str(plugin_.speaker(), ": the launch of ", executable_.program->name(), " is refused: ");
  }

  void check_counts(const XlaLists& arguments) const {
    if (arguments.size() != executable_.slots.size()) {
      fail<InvalidArgument>(opening(), "there are arguments for ", arguments.size(), " device(s), wanted ",
                            executable_.slots.size());
    }
    const std::size_t wanted = signature_ ? signature_->parameters.size() : arguments.front().size();
    for (std::size_t slot = 0; slot < arguments.size(); ++slot) {
      if (arguments[slot].size() == wanted) continue;
      fail<InvalidArgument>(opening(), "replica ", executable_.slots[slot].replica, ", partition ",
                            executable_.slots[slot].partition, " has ", arguments[slot].size(), " argument(s), wanted ",
                            wanted);
    }
  }

  // Checks that the arguments are of this client, on the slot's device, of the right shapes.
  void check_places(const std::vector<XlaBuffer>& list, std::size_t slot) const {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!list[i].defined()) fail<InvalidArgument>(place(slot, i), " stands for no array");
      const XlaBuffer::State& state = list[i].state();
      if (state.client != executable_.client) fail<InvalidArgument>(place(slot, i), " is another client's");
      if (state.device != executable_.slots[slot].device) {
        fail<InvalidArgument>(place(slot, i), " is on device ", state.device, ", wanted ",
                              executable_.slots[slot].device);
      }
      if (signature_ && *state.shape != signature_->parameters[i]) {
        fail<InvalidArgument>(place(slot, i), " is ", state.shape->to_text(), ", wanted ",
                              signature_->parameters[i].to_text());
      }
    }
  }

  void take_donated(const std::vector<XlaBuffer>& list, std::size_t slot) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (signature_ && signature_->donated[i] && !donations_.take(list[i].state())) refuse(list[i].state(), slot, i);
    }
  }
  void check_there(const std::vector<XlaBuffer>& list, std::size_t slot) const {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const bool donated = signature_ && signature_->donated[i];
      if (!donated && list[i].state().deleted) refuse(list[i].state(), slot, i);
    }
  }
  [[noreturn]] void refuse(const XlaBuffer::State& state, std::size_t slot, std::size_t argument) const {
    if (donations_.has(state)) {
      fail<InvalidArgument>(place(slot, argument), " is there twice, and the program takes its memory");
    }
    fail<FailedPrecondition>(place(slot, argument), " (", state.shape->to_text(),
                             ") was donated to a launch or erased");
  }

  const XlaExecutable::State& executable_;
  const XlaPlugin& plugin_;
  const XlaSignature* const signature_;
  Donations donations_;
  std::vector<std::vector<pjrt::Buffer*>> lists_;
  std::vector<XlaBuffer::State*> states_;  // all arguments, where the signature is not known
};

}  // namespace

XlaLaunch XlaExecutable::launch(const XlaLists& arguments) const {
  return CheckedLaunch(*state_, arguments).begin();
}

}  // namespace cohort
