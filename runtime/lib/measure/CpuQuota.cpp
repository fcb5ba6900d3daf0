#include "zorse/runtime/Measure.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>

using namespace zorse::runtime;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void narrow(CpuQuota &quota, double quotaMicroseconds, double periodMicroseconds) {
  if (!(quotaMicroseconds > 0) || !(periodMicroseconds > 0))
    return; // "max" or -1: no limit
  double cpus = quotaMicroseconds / periodMicroseconds;
  quota.cpus = quota.cpus > 0 ? std::min(quota.cpus, cpus) : cpus;
  quota.period = std::max(quota.period, periodMicroseconds * 1e-6);
}

double numberIn(const std::string &path) {
  std::ifstream file(path);
  double number = -1;
  return file >> number ? number : -1;
}

} // namespace

CpuQuota zorse::runtime::cpuQuota(const std::string &root) {
  // Lines have the form "0::/path" (version 2) or "N:cpu,cpuacct:/path" (version 1). In a container
  // the path may be the host's; the mounted directory is then the container's own group.
  std::ifstream groups(root + "/proc/self/cgroup");
  CpuQuota quota;
  for (std::string line; std::getline(groups, line);) {
    size_t first = line.find(':'),
           second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos)
      continue;
    std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",",
                path = line.substr(second + 1);
    bool unified = controllers == ",,";
    if (!unified && controllers.find(",cpu,") == std::string::npos)
      continue;
    for (;;) {
      while (!path.empty() && path.back() == '/')
        path.pop_back();
      if (unified) {
        for (const char *mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
          std::ifstream file(root + mount + path + "/cpu.max");
          std::string max;
          double period = 0;
          if (file >> max >> period && max != "max")
            narrow(quota, std::atof(max.c_str()), period);
        }
      } else {
        for (const char *mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
          double microseconds = numberIn(root + mount + path + "/cpu.cfs_quota_us");
          if (microseconds > 0) {
            narrow(quota, microseconds, numberIn(root + mount + path + "/cpu.cfs_period_us"));
            break; // both paths lead to one directory, through a link
          }
        }
      }
      if (path.empty())
        break;
      path.erase(path.rfind('/'));
    }
  }
  return quota;
}

double zorse::runtime::timedSample(double seconds, const std::function<int64_t()> &work) {
  int64_t done = 0;
  double begin = now(), end = begin;
  do {
    done += work();
    end = now();
  } while (end - begin < seconds);
  return (end - begin) / static_cast<double>(std::max<int64_t>(done, 1));
}

double zorse::runtime::median(std::vector<double> values, double *spread) {
  if (spread)
    *spread = 0;
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  size_t n = values.size();
  double middle = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  if (spread && middle > 0)
    *spread = (values[n - 1 - n / 4] - values[n / 4]) / middle;
  return middle;
}
