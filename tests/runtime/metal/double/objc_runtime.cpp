// A small Objective-C runtime: classes, messages, retain counts, autorelease pools, exceptions.
// Objects that have died keep their place, so that a message to one is caught and not a crash.
#include "objc_runtime.h"

#include <cxxabi.h>
#include <unwind.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace {

struct Object;
using Method = void (*)();

struct Selector {
  const char* name;  // one address for each name, once the image is loaded
  const char* types;
};

struct MethodEntry {
  Method body;
  Selector* selector;
  const char* types;
};

struct MethodList {
  MethodList* next;
  int count;
  size_t entry_bytes;
  MethodEntry entries[];
};

struct Ivar {
  const char* name;
  const char* type;
  int* offset;
  uint32_t size;
  uint32_t flags;
};

struct IvarList {
  int count;
  size_t entry_bytes;
  Ivar entries[];
};

struct Class {
  Class* isa;
  Class* super;
  const char* name;
  long version;
  unsigned long flags;
  long instance_bytes;  // negative until the superclass's are known
  IvarList* ivars;
  MethodList* methods;
  void* table;
  Method construct;
  Method destruct;
  Class* subclasses;
  Class* sibling;
  void* protocols;
  void* extra;
  long abi;
  void* properties;
};

constexpr unsigned long kMeta = 1, kReady = 1ul << 20;

struct Object {
  Class* isa;
};

// Stored before each object.
struct alignas(16) Header {
  std::atomic<long> count;
  Class* born;
};

// What objc_msg_lookup_sender returns; clang reads the fifth member.
struct Slot {
  void* owner;
  void* cached_for;
  const char* types;
  int version;
  Method body;
};

struct Image {
  uint64_t version;
  Selector *selectors, *selectors_end;
  Class **classes, **classes_end;
  Class **references, **references_end;
  void* rest[10];
};

struct Known {
  std::mutex mutex;
  std::unordered_set<std::string> names;
  std::unordered_map<Class*, std::unordered_map<const char*, Slot>> methods;
  std::map<std::string, long> alive;
};

Known& known() {
  static auto* known = new Known;
  return *known;
}

Class dead{};

Header& header_of(Object* object) { return reinterpret_cast<Header*>(object)[-1]; }

bool is_class(Object* object) { return (object->isa->flags & kMeta) != 0; }

const char* one_address(const char* name) { return known().names.insert(name).first->c_str(); }

void make_ready(Class* type) {
  if ((type->flags & kReady) != 0) return;
  type->flags |= kReady;
  long bytes = 0;
  if (type->super != nullptr) {
    make_ready(type->super);
    bytes = type->super->instance_bytes;
  }
  if ((type->flags & kMeta) == 0) {
    // Class methods are looked for in the superclass's, and at last among the root's own methods.
    type->isa->super = type->super != nullptr ? type->super->isa : type;
    for (int i = 0; type->ivars != nullptr && i < type->ivars->count; ++i) {
      Ivar& ivar = type->ivars->entries[i];
      const long alignment = ivar.size >= 16 ? 16 : ivar.size > 0 ? 8 : 1;
      bytes = (bytes + alignment - 1) / alignment * alignment;
      *ivar.offset = static_cast<int>(bytes);
      bytes += ivar.size;
    }
    type->instance_bytes = bytes;
  }
  auto& methods = known().methods[type];
  for (MethodList* list = type->methods; list != nullptr; list = list->next) {
    for (int i = 0; i < list->count; ++i) {
      MethodEntry& entry = list->entries[i];
      entry.selector->name = one_address(entry.selector->name);
      if (std::strcmp(entry.selector->name, ".cxx_construct") == 0) type->construct = entry.body;
      if (std::strcmp(entry.selector->name, ".cxx_destruct") == 0) type->destruct = entry.body;
      methods.emplace(entry.selector->name, Slot{type, type, entry.types, 0, entry.body});
    }
  }
  if ((type->flags & kMeta) == 0) make_ready(type->isa);
}

// Null if no class from there upwards has the method.
Slot* find(Class* type, const Selector* selector) {
  const std::lock_guard lock(known().mutex);
  for (; type != nullptr; type = type->super) {
    auto& methods = known().methods[type];
    const auto found = methods.find(selector->name);
    if (found != methods.end()) return &found->second;
  }
  return nullptr;
}

long nothing() { return 0; }
Slot of_nil{nullptr, nullptr, "", 0, reinterpret_cast<Method>(nothing)};

// Never destroyed: what ends with the process still releases.
std::vector<Object*>& released_later() {
  thread_local auto* objects = new std::vector<Object*>;
  return *objects;
}

// What distinguishes a thrown object from what C++ throws.
struct Thrown {
  Object* object;
};

}  // namespace

void fault(const std::string& fact) {
  std::fprintf(stderr, "the double of Metal: %s\n", fact.c_str());
  std::fflush(stderr);
  std::abort();
}

long live_objects(const char* class_name) {
  const std::lock_guard lock(known().mutex);
  return known().alive[class_name];
}

// The types that @catch names (clang: CGObjCGNUstep::GetEHType).
namespace gnustep::libobjc {
class __attribute__((visibility("default"))) __objc_class_type_info : public std::type_info {
 public:
  ~__objc_class_type_info() override;
  bool __do_catch(const std::type_info* thrown, void** object, unsigned) const override;
};
__objc_class_type_info::~__objc_class_type_info() = default;
bool __objc_class_type_info::__do_catch(const std::type_info* thrown, void** object,
                                        unsigned) const {
  if (*thrown != typeid(Thrown)) return false;
  Object* given = static_cast<Thrown*>(*object)->object;
  for (Class* type = given->isa; type != nullptr; type = type->super) {
    if (std::strcmp(type->name, name()) == 0) {
      *object = given;
      return true;
    }
  }
  return false;
}
}  // namespace gnustep::libobjc

extern "C" {

_Unwind_Reason_Code __gxx_personality_v0(int, _Unwind_Action, _Unwind_Exception_Class,
                                         _Unwind_Exception*, _Unwind_Context*);

_Unwind_Reason_Code __gnustep_objcxx_personality_v0(int version, _Unwind_Action actions,
                                                    _Unwind_Exception_Class type,
                                                    _Unwind_Exception* exception,
                                                    _Unwind_Context* context) {
  return __gxx_personality_v0(version, actions, type, exception, context);
}

void __objc_load(Image* image) {
  if (image->version != 0) return;
  image->version = UINT64_MAX;
  const std::lock_guard lock(known().mutex);
  for (Selector* each = image->selectors; each < image->selectors_end; ++each) {
    if (each->name != nullptr) each->name = one_address(each->name);
  }
  for (Class** each = image->classes; each < image->classes_end; ++each) {
    if (*each == nullptr) continue;
    make_ready(*each);
  }
}

void objc_exception_throw(Object* object) { throw Thrown{object}; }

Slot* objc_msg_lookup_sender(Object** receiver, Selector* selector, Object*) {
  Object* object = *receiver;
  if (object == nullptr) return &of_nil;
  if (object->isa == &dead) {
    fault(std::string("-") + selector->name + " to a " + header_of(object).born->name +
          " that has been released for the last time");
  }
  Slot* slot = find(object->isa, selector);
  if (slot == nullptr) {
    fault(std::string(object->isa->name) + " has no method " + selector->name);
  }
  return slot;
}

struct Super {
  Object* receiver;
  Class* type;
};

Method objc_msg_lookup_super(Super* super, Selector* selector) {
  Slot* slot = find(super->type, selector);
  if (slot == nullptr) fault(std::string("no superclass has ") + selector->name);
  return slot->body;
}

Object* double_new(Class* type) {
  const size_t bytes = sizeof(Header) + static_cast<size_t>(type->instance_bytes);
  void* memory = std::calloc(1, (bytes + 15) / 16 * 16);
  if (memory == nullptr) throw std::bad_alloc();
  auto* header = new (memory) Header{{1}, type};
  auto* object = reinterpret_cast<Object*>(header + 1);
  object->isa = type;
  for (Class* each = type; each != nullptr; each = each->super) {
    if (each->construct != nullptr) {
      reinterpret_cast<void (*)(Object*, Selector*)>(each->construct)(object, nullptr);
    }
  }
  const std::lock_guard lock(known().mutex);
  ++known().alive[type->name];
  return object;
}

// The end of every dealloc. The object's place is never given back.
void double_delete(Object* object) {
  Class* type = object->isa;
  for (Class* each = type; each != nullptr; each = each->super) {
    if (each->destruct != nullptr) {
      reinterpret_cast<void (*)(Object*, Selector*)>(each->destruct)(object, nullptr);
    }
  }
  object->isa = &dead;
  const std::lock_guard lock(known().mutex);
  --known().alive[type->name];
}

Object* objc_retain(Object* object) {
  if (object == nullptr || is_class(object)) return object;
  if (object->isa == &dead) {
    fault(std::string("a ") + header_of(object).born->name + " is retained after its end");
  }
  header_of(object).count.fetch_add(1);
  return object;
}

void objc_release(Object* object) {
  if (object == nullptr || is_class(object)) return;
  if (object->isa == &dead) {
    fault(std::string("a ") + header_of(object).born->name + " is released after its end");
  }
  if (header_of(object).count.fetch_sub(1) != 1) return;
  static Selector dealloc{nullptr, nullptr};
  {
    const std::lock_guard lock(known().mutex);
    if (dealloc.name == nullptr) dealloc.name = one_address("dealloc");
  }
  reinterpret_cast<void (*)(Object*, Selector*)>(find(object->isa, &dealloc)->body)(object,
                                                                                    &dealloc);
}

Object* objc_autorelease(Object* object) {
  if (object != nullptr) released_later().push_back(object);
  return object;
}
Object* objc_autoreleaseReturnValue(Object* object) { return objc_autorelease(object); }
Object* objc_retainAutorelease(Object* object) { return objc_autorelease(objc_retain(object)); }
Object* objc_retainAutoreleaseReturnValue(Object* object) { return objc_retainAutorelease(object); }
Object* objc_retainAutoreleasedReturnValue(Object* object) { return objc_retain(object); }
Object* objc_unsafeClaimAutoreleasedReturnValue(Object* object) { return object; }

void objc_storeStrong(Object** place, Object* value) {
  objc_retain(value);
  Object* before = *place;
  *place = value;
  objc_release(before);
}

void* objc_autoreleasePoolPush() { return reinterpret_cast<void*>(released_later().size()); }

void objc_autoreleasePoolPop(void* pool) {
  const auto size = reinterpret_cast<size_t>(pool);
  while (released_later().size() > size) {
    Object* object = released_later().back();
    released_later().pop_back();
    objc_release(object);
  }
}

}  // extern "C"
