# The Apple device, built on a Mac only.
set(metal_device_sources metal/apple/device.mm metal/apple/graphs.mm metal/apple/stream.mm)
