// SPDX-License-Identifier: Apache-2.0
//
// CPU limits from saved control-group files, and cores from saved topologies.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sched.h>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <qwenlite/kernels/cpu_count.hpp>
#include <qwenlite/kernels/topology.hpp>

#include "catch_any.hpp"

namespace topology = qwenlite::topology;

namespace {

/// A directory tree of the test's own, removed at the end.
class Tree {
 public:
  Tree() {
    static int count = 0;
    root_ = std::filesystem::temp_directory_path() /
            ("qwenlite_threads_" + std::to_string(getpid()) + "_" + std::to_string(++count));
    std::filesystem::create_directories(root_);
  }
  ~Tree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  Tree& file(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full, std::ios::binary) << text;
    return *this;
  }
  Tree& siblings(int cpu, const std::string& list) {
    return file("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
                list + "\n");
  }
  [[nodiscard]] std::string root() const { return root_.string(); }
  [[nodiscard]] std::optional<int> limit() const { return topology::cgroup_cpu_limit(root()); }
  [[nodiscard]] int cores(const std::vector<int>& cpus) const { return topology::count_cores(cpus, root()); }

 private:
  std::filesystem::path root_;
};

const std::string version2_mount = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

}  // namespace

TEST_CASE("CPU lists") {
  using List = std::vector<int>;
  CHECK(topology::parse_cpu_list("0") == List{0});
  CHECK(topology::parse_cpu_list("0,4\n") == List{0, 4});
  CHECK(topology::parse_cpu_list("0-1") == List{0, 1});
  CHECK(topology::parse_cpu_list("8,0-3,2,10-11\n") == List{0, 1, 2, 3, 8, 10, 11});
  for (const char* bad : {"", "\n", "a", "3-1", "-1", "1-", "0,,1", "0-99999999999", "0-2000000", "1 2",
                          "99999999999999999999", "0x1", "1-2-3"}) {
    INFO("'" << bad << "'");
    CHECK(topology::parse_cpu_list(bad).empty());
  }
}

TEST_CASE("limits of version 2 control groups") {
  CHECK(topology::parse_cpu_max("max 100000\n") == std::nullopt);
  CHECK(topology::parse_cpu_max("400000 100000\n") == 4);
  CHECK(topology::parse_cpu_max("150000 100000\n") == 1);
  CHECK(topology::parse_cpu_max("399999 100000") == 3);
  CHECK(topology::parse_cpu_max("20000 100000") == 1);
  CHECK(topology::parse_cpu_max("25000 10000") == 2);
  CHECK(topology::parse_cpu_max("9223372036854775807 1") == 1 << 20);
  for (const char* bad : {"", "100000", "100000 0", "-1 100000", "0 100000", "1e5 100000", "100000 100000 7",
                          "99999999999999999999 100000", "max", "\xff\xfe", "100000  ", " "}) {
    INFO("'" << bad << "'");
    CHECK(topology::parse_cpu_max(bad) == std::nullopt);
  }
}

TEST_CASE("limits of version 1 control groups") {
  CHECK(topology::parse_cfs("-1\n", "100000\n") == std::nullopt);
  CHECK(topology::parse_cfs("400000\n", "100000\n") == 4);
  CHECK(topology::parse_cfs("250000", "100000") == 2);
  CHECK(topology::parse_cfs("50000", "100000") == 1);
  CHECK(topology::parse_cfs("50000", "0") == std::nullopt);
  CHECK(topology::parse_cfs("50000", "") == std::nullopt);
  CHECK(topology::parse_cfs("", "100000") == std::nullopt);
}

TEST_CASE("the smallest limit on the way to the process's group holds") {
  Tree tree;
  tree.file("proc/self/mountinfo", "22 27 0:21 / /proc rw - proc proc rw\n" + version2_mount)
      .file("proc/self/cgroup", "0::/user.slice/job.scope/step\n")
      .file("sys/fs/cgroup/user.slice/cpu.max", "800000 100000\n")
      .file("sys/fs/cgroup/user.slice/job.scope/cpu.max", "300000 100000\n")
      .file("sys/fs/cgroup/user.slice/job.scope/step/cpu.max", "max 100000\n")
      .file("sys/fs/cgroup/other.slice/cpu.max", "100000 100000\n");
  CHECK(tree.limit() == 3);
  tree.file("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
  CHECK(tree.limit() == 2);
  tree.file("sys/fs/cgroup/user.slice/job.scope/step/cpu.max", "10000 100000\n");
  CHECK(tree.limit() == 1);
}

TEST_CASE("inside a container the mount itself is the group") {
  Tree own_namespace;
  own_namespace.file("proc/self/mountinfo", version2_mount)
      .file("proc/self/cgroup", "0::/\n")
      .file("sys/fs/cgroup/cpu.max", "400000 100000\n");
  CHECK(own_namespace.limit() == 4);

  Tree hosts_namespace;  // version 1: the path is the host's, the mount starts at the container's group
  hosts_namespace
      .file("proc/self/mountinfo",
            "40 39 0:35 /docker/4f2a /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
            "41 39 0:36 /docker/4f2a /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n")
      .file("proc/self/cgroup", "5:cpuset:/docker/4f2a\n4:cpu,cpuacct:/docker/4f2a/step\n1:name=systemd:/x\n")
      .file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "800000\n")
      .file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
      .file("sys/fs/cgroup/cpu,cpuacct/step/cpu.cfs_quota_us", "650000\n")
      .file("sys/fs/cgroup/cpu,cpuacct/step/cpu.cfs_period_us", "100000\n");
  CHECK(hosts_namespace.limit() == 6);

  Tree outside;  // a process moved out of its namespace's root: only the mount can be read
  outside.file("proc/self/mountinfo", version2_mount)
      .file("proc/self/cgroup", "0::/../other\n")
      .file("sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK(outside.limit() == 2);
}

TEST_CASE("both versions mounted, odd mount points, and no mount table") {
  Tree hybrid;
  hybrid
      .file("proc/self/mountinfo",
            "32 31 0:29 / /odd\\040place/cpu rw shared:4 - cgroup cgroup rw,cpu\n"
            "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n")
      .file("proc/self/cgroup", "1:cpu:/a\n0::/b\n")
      .file("odd place/cpu/a/cpu.cfs_quota_us", "500000\n")
      .file("odd place/cpu/a/cpu.cfs_period_us", "100000\n");
  CHECK(hybrid.limit() == 5);
  hybrid.file("sys/fs/cgroup/unified/b/cpu.max", "300000 100000\n");
  CHECK(hybrid.limit() == 3);

  Tree no_table;
  no_table.file("sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK(no_table.limit() == 2);
}

TEST_CASE("files that are missing or broken set no limit") {
  Tree tree;
  CHECK(tree.limit() == std::nullopt);
  tree.file("proc/self/mountinfo", version2_mount).file("proc/self/cgroup", "0::/a\n");
  CHECK(tree.limit() == std::nullopt);
  for (const char* broken : {"", "many 100000\n", "100000", "\n\n\n"}) {
    tree.file("sys/fs/cgroup/a/cpu.max", broken);
    CHECK(tree.limit() == std::nullopt);
  }
  tree.file("sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  CHECK(tree.limit() == 2);
  for (const char* broken : {"", "::::", "0:", "0::relative\n", "\n\n", "0"}) {
    tree.file("proc/self/cgroup", broken);
    CHECK(tree.limit() == std::nullopt);
  }
  for (const char* broken :
       {" - cgroup2", "29 23 0:26 - cgroup2 x y", "- - - -\n - \n", "x - cgroup y cpu"}) {
    tree.file("proc/self/mountinfo", broken);
    CHECK(tree.limit() == std::nullopt);
  }
  CHECK(topology::cgroup_cpu_limit("/nowhere/at/all") == std::nullopt);
}

TEST_CASE("hardware threads of one core count once") {
  Tree tree;
  tree.siblings(0, "0,4").siblings(1, "1,5").siblings(2, "2-3").siblings(3, "2-3");
  tree.siblings(4, "0,4").siblings(5, "1,5");
  CHECK(tree.cores({0, 1, 2, 3, 4, 5}) == 3);
  CHECK(tree.cores({0, 4}) == 1);
  CHECK(tree.cores({4}) == 1);  // its sibling is not ours
  CHECK(tree.cores({4, 5}) == 2);
  CHECK(tree.cores({}) == 0);
  CHECK(tree.cores({0, 4, 100, 101}) == 3);  // no topology: each is a core
  tree.siblings(4, "nonsense").siblings(5, "1");
  CHECK(tree.cores({0, 4}) == 2);
  CHECK(tree.cores({1, 5}) == 2);
}

TEST_CASE("the affinity mask bounds the default") {
  const std::vector<int> cpus = topology::affinity_cpus();
  REQUIRE_FALSE(cpus.empty());
  CHECK(std::is_sorted(cpus.begin(), cpus.end()));
  cpu_set_t one;
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(cpus.back()), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const std::vector<int> bound = topology::affinity_cpus();
  const int threads = qwenlite::default_thread_count();
  const int usable = qwenlite::usable_cpu_count();
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(bound == std::vector<int>{cpus.back()});
  CHECK(threads == 1);
  CHECK(usable == 1);
}
