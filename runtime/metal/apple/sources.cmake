# The Apple device: built on a Mac, and by the tests, with these very flags, against doubles of the
# classes that it uses (tests/runtime/metal/double).
set(metal_device_sources metal/apple/device.mm metal/apple/stream.mm)
set(metal_objcxx_flags -fobjc-arc -fobjc-arc-exceptions -fobjc-exceptions)
