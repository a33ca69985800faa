#include "metal/device.h"

#include <utility>

#include "metal/emulated/memory.h"
#include "metal/emulated/shaders.h"
#include "metal/emulated/stream.h"

namespace menagerie::metal {
namespace {

class EmulatedDevice final : public MetalDevice {
 public:
  std::string name() const override { return "emulated on the host's processor"; }
  std::shared_ptr<Buffer> allocate(size_t bytes) override {
    return emulated::allocate_buffer(bytes);
  }
  std::shared_ptr<Buffer> wrap(const void* data, size_t bytes,
                               std::shared_ptr<const void> owner) override {
    return emulated::wrap_buffer(data, bytes, std::move(owner));
  }
  std::shared_ptr<ShaderLibrary> compile(const std::string& source) override {
    return emulated::load_shaders(source);
  }
  std::unique_ptr<Stream> make_stream() override { return emulated::make_host_stream(); }
  // Another device may have them.
  bool has_matrix_units() const override {
    return emulated::current_mode() == emulated::Mode::kOther;
  }
  // Emulated kernels check every access: a second for 0.2e9 operations (two cores of a server).
  double library_from() const override { return 0.02e9; }
  double repeated_from() const override { return 1e5; }
};

}  // namespace

MetalDevice& MetalDevice::instance() {
  static auto* device = new EmulatedDevice;  // never destroyed: used until the process ends
  return *device;
}

}  // namespace menagerie::metal
