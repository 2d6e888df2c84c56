#include "wings/etcd/cluster/etcd_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::etcd_run_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EtcdRunTest : public ::testing::Test {
 protected:
  void put(const std::string& key, const std::string& value = "", int64_t created = 1) {
    run_.apply(event(etcd::Event::PUT, key, value, created));
  }
  void remove(const std::string& key) { run_.apply(event(etcd::Event::DELETE, key, "", 0)); }
  void enter(const std::string& task, int64_t created = 1) {
    etcd::Entered entered;
    entered.set_process("pid of " + task);
    entered.set_info("info of " + task);
    put("entered/" + task, entered.SerializeAsString(), created);
    put("alive/" + task, "7", created);
  }
  static etcd::Event event(etcd::Event::EventType type, const std::string& key, const std::string& value,
                           int64_t created) {
    etcd::Event event;
    event.set_type(type);
    event.mutable_kv()->set_key("/p/" + key);
    event.mutable_kv()->set_value(value);
    event.mutable_kv()->set_create_revision(created);
    return event;
  }

  EtcdRun run_{{{"chief", 0}, {"worker", 0}, {"worker", 1}}, "/p/"};
};

TEST_F(EtcdRunTest, KnowsWhoHasEntered) {
  EXPECT_THAT(run_.not_entered(), ElementsAre("chief 0", "worker 0", "worker 1"));
  enter("worker 1");
  enter("chief 0");
  EXPECT_THAT(run_.not_entered(), ElementsAre("worker 0"));
  enter("worker 0");
  EXPECT_THAT(run_.not_entered(), IsEmpty());
  EXPECT_THAT(run_.infos(), ElementsAre("info of chief 0", "info of worker 0", "info of worker 1"));
  EXPECT_FALSE(run_.over());
}

TEST_F(EtcdRunTest, WhoseLeaseHasEndedIsLostUnlessItHasLeft) {
  enter("chief 0", 3);
  enter("worker 0", 5);
  EXPECT_FALSE(run_.loss());
  put("left/chief 0");
  remove("alive/chief 0");
  EXPECT_FALSE(run_.loss());
  EXPECT_THAT(run_.gone(), ElementsAre("chief 0"));
  remove("alive/worker 0");
  ASSERT_TRUE(run_.loss());
  EXPECT_EQ(run_.loss()->task, "worker 0");
  EXPECT_EQ(run_.loss()->process, "pid of worker 0");
  EXPECT_EQ(run_.loss()->entered, 5);
  EXPECT_TRUE(run_.over());
}

TEST_F(EtcdRunTest, IsOverWhenItHasFailedAndWhenAllHaveLeft) {
  for (const char* task : {"chief 0", "worker 0", "worker 1"}) {
    EXPECT_FALSE(run_.over());
    enter(task);
    put(std::string("left/") + task);
  }
  EXPECT_TRUE(run_.over());
  remove("left/worker 1");
  EXPECT_FALSE(run_.over());
  put("failure", "out of memory");
  EXPECT_TRUE(run_.over());
  EXPECT_EQ(run_.failure(), "out of memory");
}

TEST_F(EtcdRunTest, ABarrierWaitsForWhoHasNotLeft) {
  put("barrier/a/b (2)/worker 1");
  put("left/chief 0");
  EXPECT_THAT(run_.not_at("a/b (2)"), ElementsAre("worker 0"));
  EXPECT_THAT(run_.not_at("a/b"), ElementsAre("worker 0", "worker 1"));
  put("barrier/a/b (2)/worker 0");
  EXPECT_THAT(run_.not_at("a/b (2)"), IsEmpty());
}

TEST_F(EtcdRunTest, TakesAllKeysInPlaceOfThoseBefore) {
  enter("chief 0");
  google::protobuf::RepeatedPtrField<etcd::KeyValue> keys;
  keys.Add()->set_key("/p/left/worker 1");
  run_.replace(keys);
  EXPECT_THAT(run_.not_entered(), ElementsAre("chief 0", "worker 0", "worker 1"));
  EXPECT_THAT(run_.gone(), ElementsAre("worker 1"));
  EXPECT_FALSE(run_.entered("chief 0"));
}

}  // namespace
}  // namespace cohort::etcd_run_test
