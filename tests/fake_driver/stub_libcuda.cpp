// A libcuda for load_driver to open: it has every function, of which only the version query may be called.
// W4MOE_STUB_VERSION: the driver's version; 0 behaves as the stub library of the CUDA toolkit. W4MOE_STUB_MISSING: a name it lacks.
#include <cstdlib>
#include <cstring>

namespace {

int stub_version() {
  const char* text = std::getenv("W4MOE_STUB_VERSION");
  return text == nullptr ? 12000 : std::atoi(text);
}

int get_version(int* version) {
  *version = stub_version();
  return 0;
}

int not_to_be_called() { return 999; }

}  // namespace

extern "C" int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int* found) {
  const char* missing = std::getenv("W4MOE_STUB_MISSING");
  if (stub_version() == 0) return 34;
  *found = 0;
  if (missing != nullptr && std::strcmp(missing, name) == 0) {
    *function = nullptr;
    return 500;
  }
  *function = std::strcmp(name, "cuDriverGetVersion") == 0 ? reinterpret_cast<void*>(&get_version) : reinterpret_cast<void*>(&not_to_be_called);
  return 0;
}
