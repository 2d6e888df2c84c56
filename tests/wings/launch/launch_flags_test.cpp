// Wrong calls of cohort launch: exit status 2 and a message that says what came and what was wanted. The command is
// called in this process; loading LibTorch anew for every call would take most of the time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/command/train_command.h"
#include "wings/launch/launch.h"

namespace cohort::launch_flags_test {
namespace {

using ::testing::HasSubstr;

// `program`: what stands behind --.
void expect_refused(const std::string& message, std::vector<std::string> flags,
                    const std::vector<std::string>& program = {"true"}) {
  CLI::App app;
  const cli::Command run = cli::add_launch(app, program);
  std::reverse(flags.begin(), flags.end());  // CLI11 takes them from the end
  app.parse(flags);
  ::testing::internal::CaptureStderr();
  const int status = exit_status(run);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, 2) << said;
  EXPECT_THAT(said, HasSubstr(message));
}

TEST(LaunchFlags, ThatDoNotFitAreRefused) {
  expect_refused("there is no program to start", {"--nproc=2"}, {});
  expect_refused("--nproc is 0, wanted 1 or more", {"--nproc=0"});
  expect_refused("--node_rank is 2 and --nnodes 2", {"--nnodes=2", "--node_rank=2", "--master_port=1"});
  expect_refused("all nodes need the same --master_addr and --master_port", {"--nnodes=2"});
  expect_refused("--max_restarts is -1", {"--max_restarts=-1"});
  expect_refused("--hosts needs --master_port", {"--hosts=a,b"});
  expect_refused("--elastic=3: wanted MIN:MAX", {"--elastic=3"});
  expect_refused("--elastic=3:2: wanted MIN:MAX", {"--elastic=3:2"});
  expect_refused("--join=nowhere: wanted the leader's host:port", {"--join=nowhere"});
  expect_refused("only one of them may come", {"--elastic=1:2", "--join=a:1"});
  expect_refused("--max_restarts has no meaning with --elastic", {"--elastic=1:2", "--max_restarts=1"});
  expect_refused("--ps has no meaning with --elastic", {"--elastic=1:2", "--ps=1"});
  expect_refused("--hosts has no meaning with --elastic", {"--elastic=1:2", "--hosts=a"});
  expect_refused("--master_port has no meaning with --join", {"--join=a:1", "--master_port=5"});
  expect_refused("--workers has no meaning without --ps", {"--workers=3"});
  expect_refused("--ssh has no meaning without --hosts", {"--ssh=rsh"});
  expect_refused("--join_timeout has no meaning without --elastic", {"--join_timeout=5"});
  expect_refused("--ps has no meaning with --hosts", {"--hosts=a", "--master_port=5", "--ps=1"});
  for (const std::string flag : {"--nnodes=2", "--node_rank=1", "--node_hosts=a", "--master_addr=a"}) {
    expect_refused(flag.substr(0, flag.find('=')) + " has no meaning with --hosts",
                   {"--hosts=a", "--master_port=5", flag});
  }
  expect_refused("--grace_period is -1, wanted seconds", {"--grace_period=-1"});
  expect_refused("--grace_period is inf, wanted seconds", {"--grace_period=inf"});
  expect_refused("--grace_period is nan, wanted seconds", {"--grace_period=nan"});
  expect_refused("would listen on port 65536", {"--nproc=2", "--nnodes=2", "--master_port=65535", "--node_hosts=a,b"});
  expect_refused("-x COHORT_NOT_SET: it is not set here", {"-x", "COHORT_NOT_SET"});
  expect_refused("-x MY_TOKEN=...: arguments stand in the list of processes", {"-x", "MY_TOKEN=1"});
  expect_refused("--insecure, --secret_file and --tls_ca exclude each other", {"--insecure", "--secret_file=x"});
  expect_refused("--tls_ca, --tls_cert and --tls_key belong together, got \"x\", \"\" and \"\"", {"--tls_ca=x"});
  expect_refused("secret_file \"/no/such\" cannot be read", {"--secret_file=/no/such"});
  expect_refused("--log_dir=/dev/null/x cannot be made", {"--log_dir=/dev/null/x"});
}

}  // namespace
}  // namespace cohort::launch_flags_test
