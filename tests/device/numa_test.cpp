#include "device/numa.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "tests/support/files.h"

namespace cohort::numa_test {
namespace {

using Processors = std::vector<int>;

void write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST(Numa, ACardsNodeIsLinuxs) {
  const testing::TemporaryFolder sysfs;
  write(sysfs / "bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
  write(sysfs / "bus/pci/devices/0000:5e:00.0/numa_node", "-1\n");
  write(sysfs / "devices/system/node/node1/cpulist", "2-3,8,10-11\n");
  write(sysfs / "devices/system/node/node2/cpulist", "\n");
  EXPECT_EQ(numa_node_of(sysfs.path(), "0000:3B:00.0"), 1) << "CUDA writes it in capitals";
  EXPECT_EQ(numa_node_of(sysfs.path(), "0000:5e:00.0"), std::nullopt) << "the machine has no nodes";
  EXPECT_EQ(numa_node_of(sysfs.path(), "0000:77:00.0"), std::nullopt);
  EXPECT_EQ(numa_node_of(sysfs.path(), "../../x"), std::nullopt);
  EXPECT_EQ(numa_node_of(sysfs.path(), ""), std::nullopt);
  EXPECT_EQ(processors_of_node(sysfs.path(), 1), (Processors{2, 3, 8, 10, 11}));
  EXPECT_EQ(processors_of_node(sysfs.path(), 2), Processors{}) << "a node of memory alone";
  EXPECT_EQ(processors_of_node(sysfs.path(), 3), Processors{});
}

TEST(Numa, ListsOfProcessors) {
  EXPECT_EQ(parse_processors("4,0-2,1"), (Processors{0, 1, 2, 4}));
  EXPECT_EQ(parse_processors(""), Processors{});
  for (const char* text : {"a", "1-", "-1", "3-2", "1,,2", "0-99999999"}) {
    EXPECT_EQ(parse_processors(text), std::nullopt) << text;
  }
}

TEST(Numa, AThreadStaysWhereItMayRun) {
  EXPECT_EQ(to_bind({0, 1, 4}, {1, 2, 4}), (Processors{1, 4}));
  EXPECT_EQ(to_bind({0, 1, 2, 3}, {1, 2}), Processors{}) << "it is near already";
  EXPECT_EQ(to_bind({0, 1}, {2, 3}), Processors{}) << "the user has put it elsewhere";
  EXPECT_EQ(to_bind({}, {2, 3}), Processors{});
}

Processors own_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  Processors list;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return list;
  for (int each = 0; each < CPU_SETSIZE; ++each) {
    if (CPU_ISSET(each, &set)) list.push_back(each);
  }
  return list;
}

TEST(Numa, BindsWhileItLives) {
  const Processors before = own_processors();
  if (before.size() < 2) GTEST_SKIP() << "needs two processors";
  {
    const NearProcessors bound({before.back()});
    EXPECT_EQ(own_processors(), Processors{before.back()});
    std::jthread([&] { EXPECT_EQ(own_processors(), Processors{before.back()}) << "a thread started meanwhile"; });
  }
  EXPECT_EQ(own_processors(), before);
}

}  // namespace
}  // namespace cohort::numa_test
