// What torch asks of CUDA devices in C++, where there are none: two of them, and streams that are seen to elsewhere.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

using c10::Device, c10::DeviceIndex, c10::DeviceType, c10::Stream;

static constexpr DeviceIndex count = 2;
static thread_local DeviceIndex current = 0;
extern "C" int get_device() { return current; }
extern "C" void set_device(int device) { current = device; }

struct Guard final : public c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  DeviceIndex deviceCount() const noexcept override { return count; }
  Device getDevice() const override { return {DeviceType::CUDA, current}; }
  Device exchangeDevice(Device device) const override {
    Device before = getDevice();
    current = device.index();
    return before;
  }
  void setDevice(Device device) const override { current = device.index(); }
  void uncheckedSetDevice(Device device) const noexcept override { current = device.index(); }
  Stream getStream(Device device) const noexcept override { return Stream(Stream::DEFAULT, device); }
  Stream getDefaultStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream exchangeStream(Stream stream) const noexcept override { return Stream(Stream::DEFAULT, stream.device()); }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}
};
static c10::impl::DeviceGuardImplRegistrar registrar(DeviceType::CUDA, new Guard());

namespace at {
struct CUDAHooks : public CUDAHooksInterface {  // the name under which torch looks for it
  CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex current_device() const override { return current; }
  DeviceIndex deviceCount() const override { return count; }
  DeviceIndex getCurrentDevice() const override { return current; }
  int getNumGPUs() const override { return count; }
  std::string showConfig() const override { return ""; }
  void deviceSynchronize(DeviceIndex) const override {}
};
REGISTER_CUDA_HOOKS(CUDAHooks);
}  // namespace at
