// What the machine grants a process: quotas of control groups, as the kernel's files say them
// (Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-bwc.rst).
#include <filesystem>

#include "check.h"
#include "common/platform/machine.h"
#include "files.h"

using namespace menagerie;
namespace fs = std::filesystem;

namespace {

void put(const check::Folder& root, const std::string& name, std::string_view text) {
  fs::create_directories((root.path() / name).parent_path());
  root.write(name, text);
}

}  // namespace

#ifdef __linux__
TEST("of all groups around a process the smallest quota holds, rounded up") {
  const check::Folder root;
  put(root, "proc/self/cgroup", "0::/pod/app\n");
  CHECK(machine::processor_quota(root.path()) == INT32_MAX);
  put(root, "sys/fs/cgroup/pod/app/cpu.max", "max 100000\n");
  CHECK(machine::processor_quota(root.path()) == INT32_MAX);
  put(root, "sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  CHECK(machine::processor_quota(root.path()) == 3);
  put(root, "sys/fs/cgroup/cpu.max", "1000 100000\n");
  CHECK(machine::processor_quota(root.path()) == 1);
}

TEST("version 1 of control groups has its quota among those of the controller cpu") {
  const check::Folder root;
  put(root, "proc/self/cgroup", "4:memory:/app\n3:cpu,cpuacct:/app\n0::/\n");
  put(root, "sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "50000\n");
  put(root, "sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "-1\n");
  CHECK(machine::processor_quota(root.path()) == INT32_MAX);
  put(root, "sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "100000\n");
  CHECK(machine::processor_quota(root.path()) == 2);
}

TEST("files that say nothing set no quota") {
  const check::Folder root;
  CHECK(machine::processor_quota(root.path()) == INT32_MAX);
  put(root, "proc/self/cgroup", "nonsense\n0::\n::::\n");
  put(root, "sys/fs/cgroup/cpu.max", "many of them\n");
  CHECK(machine::processor_quota(root.path()) == INT32_MAX);
}
#endif
