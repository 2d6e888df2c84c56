// A client whose devices are several processes': what the plugin is told, the store that it uses, and which devices are
// this process's. The processes are threads, each with a copy of the tests' own plugin.
#include "wings/xla/device/processes.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <condition_variable>
#include <thread>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/device/fake_plugin_test.h"
#include "wings/xla/device/client.h"

namespace cohort::processes_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

using namespace std::chrono_literals;  // NOLINT: for literals

struct Store {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
};

class Processes final : public XlaProcesses {
 public:
  Processes(std::shared_ptr<Store> store, int index, int count)
      : store_(std::move(store)), index_(index), count_(count) {}

  int count() const override { return count_; }
  int index() const override { return index_; }
  std::string get(const std::string& key, std::chrono::milliseconds limit) override {
    std::unique_lock lock(store_->mutex);
    if (!store_->changed.wait_for(lock, limit, [&] { return store_->values.contains(key); })) {
      throw DeadlineExceeded("[cluster] nobody has put " + key);
    }
    return store_->values.at(key);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    const std::scoped_lock lock(store_->mutex);
    const auto found = store_->values.find(key);
    return found == store_->values.end() ? std::nullopt : std::optional(found->second);
  }
  void put(const std::string& key, const std::string& value) override {
    if (const auto gone = failure()) throw Unavailable("[cluster] " + *gone);
    const std::scoped_lock lock(store_->mutex);
    store_->values[key] = value;
    store_->changed.notify_all();
  }
  std::optional<std::string> failure() const override {
    const std::scoped_lock lock(store_->mutex);
    return gone_;
  }

  void lose(const std::string& reason) {
    const std::scoped_lock lock(store_->mutex);
    gone_ = reason;
  }

 private:
  std::optional<std::string> gone_;
  std::shared_ptr<Store> store_;
  int index_;
  int count_;
};

// One process of two, with two of four devices.
struct Host : testing::FakePluginTest {
  Host(const std::shared_ptr<Store>& store, int index) : processes(std::make_shared<Processes>(store, index, 2)) {
    fake().devices = 4;
    fake().processes = 2;
    fake().process = index;
    fake().shares = true;
  }
  void TestBody() override {}
  XlaClientPtr open() const {
    return XlaClient::create(load(), {.options = {{"own", int64_t{7}}}, .processes = processes});
  }

  using FakePluginTest::comes_to;
  using FakePluginTest::fail;
  using FakePluginTest::fake;
  using FakePluginTest::place_;
  std::shared_ptr<Processes> processes;
};

TEST(XlaProcesses, APluginGetsItsProcessesAndTheirStore) {
  const auto store = std::make_shared<Store>();
  Host first(store, 0);
  Host second(store, 1);
  XlaClientPtr clients[2];
  {
    const std::jthread other([&] { clients[1] = second.open(); });
    clients[0] = first.open();
  }
  EXPECT_THAT(first.fake().whole_options,
              UnorderedElementsAre(Pair("own", 7), Pair("node_id", 0), Pair("num_nodes", 2)));
  EXPECT_EQ(second.fake().whole_options.at("node_id"), 1);
  EXPECT_THAT(first.fake().shared, ElementsAre("from 1", "5 [xla] nobody has put xla/plugin/nobody's"));
  EXPECT_THAT(second.fake().shared, ElementsAre("from 0", HasSubstr("nobody has put")));
  EXPECT_THAT(store->values,
              UnorderedElementsAre(Pair("xla/plugin/process/0", "from 0"), Pair("xla/plugin/process/1", "from 1")));

  EXPECT_EQ(clients[1]->process(), 1);
  EXPECT_EQ(clients[1]->num_processes(), 2);
  EXPECT_EQ(clients[1]->devices().size(), 4U);
  EXPECT_THAT(clients[1]->local_devices(), ElementsAre(2, 3));
  EXPECT_THAT(error_of<InvalidArgument>([&] { clients[1]->to_device(torch::zeros({2}), 0); }),
              HasSubstr("the device 0 is another process's"));
}

TEST(XlaProcesses, AProgramForAllRunsOnTheDevicesOfThisProcess) {
  const auto store = std::make_shared<Store>();
  Host host(store, 1);
  host.fake().shares = false;
  host.fake().replicas = 4;
  const XlaClientPtr client = host.open();
  const XlaExecutablePtr program = client->compile("module", {.num_replicas = 4, .devices = {0, 1, 2, 3}});
  ASSERT_EQ(program->slots().size(), 2U);
  EXPECT_EQ(program->slots()[0].replica, 2);
  EXPECT_EQ(program->slots()[1].device, 3);
}

TEST(XlaProcesses, AWaitForADeviceHearsOfALostProcess) {
  const auto store = std::make_shared<Store>();
  Host host(store, 0);
  host.fake().shares = false;
  host.fake().replicas = 4;
  host.fake().lacking.insert("Executable_OptimizedProgram");  // a program without a signature takes what it gets
  const XlaClientPtr client = host.open();
  const XlaExecutablePtr program = client->compile("module", {.num_replicas = 4, .devices = {0, 1, 2, 3}});
  const XlaLists arguments = {{client->to_device(torch::ones({4}), 0)}, {client->to_device(torch::ones({4}), 1)}};
  host.fake().events_hang = true;
  const XlaLaunch launch = program->launch(arguments);
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { launch.done.wait(Deadline(50ms)); }), HasSubstr("the launch of fake"));
  const std::jthread later([&] {
    std::this_thread::sleep_for(50ms);
    host.processes->lose("worker 1 is lost");
  });
  EXPECT_THAT(error_of<Unavailable>([&] { launch.done.wait(Deadline(10s)); }),
              HasSubstr("the launch of fake cannot end, because worker 1 is lost"));
}

TEST(XlaProcesses, MakingAClientHearsOfALostProcess) {
  const auto store = std::make_shared<Store>();
  Host host(store, 0);
  host.fake().shares = false;
  host.fake().delays["Client_Create"] = 1s;
  host.processes->lose("worker 1 is lost");
  EXPECT_THAT(error_of<Unavailable>([&] { (void)host.open(); }),
              HasSubstr("it cannot open its devices, because worker 1 is lost"));
  EXPECT_TRUE(host.comes_to("Client_Destroy"));  // of what was made when nobody waited any more
}

TEST(XlaProcesses, LibtpuFindsItsPodItself) {
  const auto store = std::make_shared<Store>();
  Host host(store, 0);
  host.fake().shares = false;
  host.place_.name = "tpu";
  (void)host.open();
  EXPECT_THAT(host.fake().whole_options, ElementsAre(Pair("own", 7)));
}

TEST(XlaProcesses, ErrorsOfTheStoreComeBackThroughThePlugin) {
  const auto store = std::make_shared<Store>();
  Host host(store, 0);
  host.fake().store_limit_ms = 30;
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { (void)host.open(); }),
              AllOf(HasSubstr("PJRT_Client_Create failed (DEADLINE_EXCEEDED)"),
                    HasSubstr("nobody has put xla/plugin/process/1")));
  host.processes->lose("worker 1 is lost");
  EXPECT_THAT(error_of<Unavailable>([&] { (void)host.open(); }), HasSubstr("worker 1 is lost"));
}

}  // namespace
}  // namespace cohort::processes_test
