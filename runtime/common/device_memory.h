// Memory that a device addresses beside the host, as a storage keeps it. Only the backend that made
// it knows what else it is.
#pragma once

namespace menagerie {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  virtual ~DeviceMemory() = default;

  // Where the host sees it.
  virtual void* contents() const = 0;
};

}  // namespace menagerie
