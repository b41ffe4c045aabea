// The allocator of a worker's torch while it runs calls: it hands out the region that the judge lent.
//
// torch's caching allocator is in front, as in production, and requests a segment now and then. So outputs lie in memory
// that the judge can read. When the region is full, requests go to the driver: scratch memory may lie anywhere, only
// outputs must lie in the region.

#include <dlfcn.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace {

constexpr size_t kAlignment = 512;

std::mutex guard;
std::map<uintptr_t, size_t> vacant;  // by address: start and length
uintptr_t region = 0;
size_t region_size = 0;

// The driver is loaded in this process, but its symbols are not visible to every library.
void* driver_symbol(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  return driver != nullptr ? dlsym(driver, name) : nullptr;
}

void* from_driver(size_t size) {
  using Allocate = int (*)(uint64_t*, size_t);
  static const auto allocate = reinterpret_cast<Allocate>(driver_symbol("cuMemAlloc_v2"));
  uint64_t address = 0;
  return allocate != nullptr && allocate(&address, size) == 0 ? reinterpret_cast<void*>(address) : nullptr;
}

void to_driver(void* pointer) {
  using Release = int (*)(uint64_t);
  static const auto release = reinterpret_cast<Release>(driver_symbol("cuMemFree_v2"));
  if (release != nullptr) release(reinterpret_cast<uint64_t>(pointer));
}

}  // namespace

extern "C" {

void lend(uint64_t address, uint64_t size) {
  std::lock_guard<std::mutex> held(guard);
  region = address;
  region_size = size;
  vacant.clear();
  vacant[address] = size;
}

void* allocate(ssize_t size, int, void*) {
  const size_t wanted = (static_cast<size_t>(size) + kAlignment - 1) / kAlignment * kAlignment;
  {
    std::lock_guard<std::mutex> held(guard);
    for (auto it = vacant.begin(); it != vacant.end(); ++it) {
      if (it->second < wanted) continue;
      const uintptr_t start = it->first;
      const size_t left = it->second - wanted;
      vacant.erase(it);
      if (left > 0) vacant[start + wanted] = left;
      return reinterpret_cast<void*>(start);
    }
  }
  return from_driver(wanted);
}

void release(void* pointer, ssize_t size, int, void*) {
  const uintptr_t start = reinterpret_cast<uintptr_t>(pointer);
  if (start < region || start >= region + region_size) return to_driver(pointer);
  std::lock_guard<std::mutex> held(guard);
  size_t length = (static_cast<size_t>(size) + kAlignment - 1) / kAlignment * kAlignment;
  auto next = vacant.lower_bound(start);
  if (next != vacant.end() && start + length == next->first) {
    length += next->second;
    next = vacant.erase(next);
  }
  if (next != vacant.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == start) {
      before->second += length;
      return;
    }
  }
  vacant[start] = length;
}

}  // extern "C"
