// SPDX-License-Identifier: Apache-2.0
#include "base/available_cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <map>
#include <thread>

namespace onnx_fp8 {
namespace {

using Files = std::map<std::string, std::string>;

std::optional<int> CpusOf(const Files& files) {
  return CgroupCpus([&](const std::string& path) {
    auto it = files.find(path);
    return it == files.end() ? std::nullopt : std::optional(it->second);
  });
}

// A machine with systemd: only version 2, with our group three folders down.
Files Version2(const std::string& own, const std::string& middle,
               const std::string& outer) {
  return {{"/proc/self/cgroup", "0::/user.slice/user-0.slice/a.scope\n"},
          {"/proc/self/mountinfo",
           "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
           "35 22 0:30 / /sys/fs/cgroup rw,nosuid shared:9 master:2 - cgroup2 "
           "cgroup2 rw,nsdelegate\n"},
          {"/sys/fs/cgroup/user.slice/user-0.slice/a.scope/cpu.max", own},
          {"/sys/fs/cgroup/user.slice/user-0.slice/cpu.max", middle},
          {"/sys/fs/cgroup/user.slice/cpu.max", outer}};
}

TEST(CgroupCpus, Version2TakesTheLeastOfNestedGroups) {
  const char* none = "max 100000\n";
  EXPECT_EQ(CpusOf(Version2(none, none, none)), std::nullopt);
  EXPECT_EQ(CpusOf(Version2("200000 100000\n", none, none)), 2);
  EXPECT_EQ(CpusOf(Version2(none, "300000 100000\n", none)), 3);
  EXPECT_EQ(CpusOf(Version2(none, none, "50000 50000\n")), 1);
  EXPECT_EQ(
      CpusOf(Version2("900000 100000\n", "400000 100000\n", "500000 100000\n")),
      4);
}

TEST(CgroupCpus, RoundsUp) {
  EXPECT_EQ(CpusOf(Version2("150000 100000\n", "", "")), 2);
  EXPECT_EQ(CpusOf(Version2("1000 100000\n", "", "")), 1);
  EXPECT_EQ(CpusOf(Version2("200001 100000\n", "", "")), 3);
  EXPECT_EQ(CpusOf(Version2("9000000000000000000 1\n", "", "")),
            std::numeric_limits<int>::max());
}

TEST(CgroupCpus, Version2InAContainer) {
  Files files = {{"/proc/self/cgroup", "0::/\n"},
                 {"/proc/self/mountinfo",
                  "9 8 0:30 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n"},
                 {"/sys/fs/cgroup/cpu.max", "250000 100000\n"}};
  EXPECT_EQ(CpusOf(files), 3);
  files["/proc/self/cgroup"] = "0::/../../other\n";
  EXPECT_EQ(CpusOf(files), 3);
}

TEST(CgroupCpus, Version1) {
  Files files = {
      {"/proc/self/cgroup",
       "5:cpuset:/x\n4:cpu,cpuacct:/outer/own group\n1:name=systemd:/y\n"
       "0::/z\n"},
      {"/proc/self/mountinfo",
       "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
       "32 31 0:29 / /sys/fs/cgroup/cpu\\040acct rw - cgroup cgroup "
       "rw,cpu,cpuacct\n"
       "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
       "34 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"},
      {"/sys/fs/cgroup/cpuset/x/cpu.cfs_quota_us", "100000\n"},
      {"/sys/fs/cgroup/cpuset/x/cpu.cfs_period_us", "100000\n"}};
  const std::string mount = "/sys/fs/cgroup/cpu acct";
  auto set = [&](const std::string& group, const char* quota) {
    files[mount + group + "/cpu.cfs_quota_us"] = quota;
    files[mount + group + "/cpu.cfs_period_us"] = "100000\n";
  };
  EXPECT_EQ(CpusOf(files), std::nullopt);
  set("/outer/own group", "-1\n");
  EXPECT_EQ(CpusOf(files), std::nullopt);
  set("/outer/own group", "350000\n");
  EXPECT_EQ(CpusOf(files), 4);
  set("/outer", "110000\n");
  EXPECT_EQ(CpusOf(files), 2);
  set("", "90000\n");
  EXPECT_EQ(CpusOf(files), 1);
}

// A container shows only its own group and the host's path to it.
TEST(CgroupCpus, AMountOfAPartOfTheTree) {
  Files files = {{"/proc/self/cgroup", "4:cpu:/docker/abc/in\n"},
                 {"/proc/self/mountinfo",
                  "32 31 0:29 /docker/abc /cg ro - cgroup cgroup ro,cpu\n"},
                 {"/cg/in/cpu.cfs_quota_us", "200000"},
                 {"/cg/in/cpu.cfs_period_us", "100000"},
                 {"/cg/cpu.cfs_quota_us", "300000"},
                 {"/cg/cpu.cfs_period_us", "100000"}};
  EXPECT_EQ(CpusOf(files), 2);
  files["/proc/self/cgroup"] = "4:cpu:/docker/abcd\n";
  EXPECT_EQ(CpusOf(files), 3);
}

TEST(CgroupCpus, OtherTextIsNoQuota) {
  EXPECT_EQ(CpusOf({}), std::nullopt);
  for (const char* text :
       {"", "max\n", "x y\n", "1\n", "-1 100000\n", "100000 0\n", "0 100000\n",
        "99999999999999999999 1\n"}) {
    EXPECT_EQ(CpusOf(Version2(text, "", "")), std::nullopt) << text;
  }
  Files files = Version2("100000 100000\n", "", "");
  for (const char* group : {"", "\n", "0:", "0::", "0::a", "::::", "0::\n"}) {
    files["/proc/self/cgroup"] = group;
    EXPECT_EQ(CpusOf(files), std::nullopt) << group;
  }
  files = Version2("100000 100000\n", "", "");
  for (const char* mounts : {"", " - \n", "1 2 3 4 5 6 - cgroup2\n", "- - -",
                             "1 2 3 / \\04 6 - cgroup2 c rw\n"}) {
    files["/proc/self/mountinfo"] = mounts;
    EXPECT_EQ(CpusOf(files), std::nullopt) << mounts;
  }
}

TEST(AvailableCpus, AreNoMoreThanTheAffinityMask) {
  EXPECT_GE(AvailableCpus(), 1);
  std::thread([] {  // a mask is a thread's
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(AvailableCpus(), 1);
  })
      .join();
}

}  // namespace
}  // namespace onnx_fp8
