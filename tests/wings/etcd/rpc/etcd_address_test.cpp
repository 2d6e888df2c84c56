#include "wings/etcd/rpc/etcd_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::etcd_address_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(EtcdAddress, HasMembersUserAndJob) {
  const EtcdAddress one = parse_etcd_address("etcd://a:1");
  EXPECT_THAT(one.endpoints, ElementsAre("a:1"));
  EXPECT_FALSE(one.tls);
  EXPECT_EQ(one.user + one.password + one.job, "");
  const EtcdAddress all = parse_etcd_address("etcds://me:p@ss:word@a:1,[::1]:2,c:3/job-1.x:5");
  EXPECT_THAT(all.endpoints, ElementsAre("a:1", "[::1]:2", "c:3"));
  EXPECT_TRUE(all.tls);
  EXPECT_EQ(all.user, "me");
  EXPECT_EQ(all.password, "p@ss:word");
  EXPECT_EQ(all.job, "job-1.x:5");
  EXPECT_EQ(all.shown(), "etcd at a:1, [::1]:2, c:3");
}

TEST(EtcdAddress, WrongOnesAreNamedWithoutThePassword) {
  for (const char* text : {"http://a:1", "etcd://", "etcd://a", "etcd://a:1,", "etcd://a:1,b", "etcd://a:1/b/c",
                           "etcd://:word@a:1", "etcd://user@a:1", "a:1"}) {
    SCOPED_TRACE(text);
    EXPECT_THAT(error_of<InvalidArgument>([&] { (void)parse_etcd_address(text); }),
                HasSubstr("wanted etcd://HOST:PORT[,HOST:PORT...][/JOB]"));
  }
  EXPECT_THAT(error_of<InvalidArgument>([] { (void)parse_etcd_address("etcd://me:word@a"); }),
              AllOf(HasSubstr("\"etcd://...@a\": \"a\" is no address"), Not(HasSubstr("word"))));
}

}  // namespace
}  // namespace cohort::etcd_address_test
