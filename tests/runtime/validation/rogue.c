/* A model library that misbehaves on command: y = x, unless the first element of x is the number of
 * a misdeed. It implements the functions of aoti_runtime/interface.h that the runtime calls. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void* Tensor;
typedef void* Container;

extern int32_t aoti_torch_clone(Tensor self, Tensor* copy);
extern int32_t aoti_torch_get_data_ptr(Tensor tensor, void** data);
extern int32_t aoti_torch_get_dtype(Tensor tensor, int32_t* dtype);
extern int32_t aoti_torch_delete_tensor_object(Tensor tensor);

enum Misdeed {
  SEGMENTATION_FAULT = 1,
  ABORT,
  EXIT_QUIETLY,
  SPIN_BESIDE_A_CHILD,
  PAUSE,
  HOARD_MEMORY,
  GIVE_NAN,
  CHANGE_EVERY_RUN,
  RETURN_AN_ERROR,
  COUNT_CONTAINERS,
  LOAD_LIBTORCH,
  SCRIBBLE_ON_ALL_FILES,
  CRASH_AT_UNLOAD,
};

static const int32_t kFloat32 = 6; /* c10::ScalarType::Float */

static int containers, runs;
static bool crash_at_unload;

static void crash(void) { *(volatile int*)16 = 1; }

__attribute__((destructor)) static void unload(void) {
  if (crash_at_unload) crash();
}

static void spin_beside_a_child(void) {
  if (fork() == 0) {
    for (;;) pause();
  }
  for (volatile bool forever = true; forever;) continue;
}

static void hoard_memory(void) {
  const size_t bytes = 64 << 20;
  for (;;) memset(malloc(bytes), 1, bytes); /* writes to NULL when there is no more */
}

static void load_libtorch(void) {
  Dl_info here;
  dladdr((void*)load_libtorch, &here);
  char path[PATH_MAX];
  if (realpath(here.dli_fname, path) == NULL) abort(); /* it was loaded by a descriptor */
  strcpy(strrchr(path, '/'), "/libtorch_cpu.so");
  if (dlopen(path, RTLD_NOW) == NULL) abort();
}

static void scribble(void) {
  for (int file = 3; file < 64; ++file) {
    if (write(file, "{\"kind\": \"outcome\"}\n\xff{\n", 23) < 0) continue;
  }
}

static int32_t misbehave(int command, float* y) {
  switch (command) {
    case SEGMENTATION_FAULT:
      crash();
      break;
    case ABORT:
      abort();
    case EXIT_QUIETLY:
      _exit(0);
    case SPIN_BESIDE_A_CHILD:
      spin_beside_a_child();
      break;
    case PAUSE:
      for (;;) pause();
    case HOARD_MEMORY:
      hoard_memory();
      break;
    case GIVE_NAN:
      y[1] = NAN;
      break;
    case CHANGE_EVERY_RUN:
      y[1] = (float)++runs;
      break;
    case RETURN_AN_ERROR:
      return 1;
    case COUNT_CONTAINERS:
      y[1] = (float)containers;
      break;
    case LOAD_LIBTORCH:
      load_libtorch();
      break;
    case SCRIBBLE_ON_ALL_FILES:
      scribble();
      break;
    case CRASH_AT_UNLOAD:
      crash_at_unload = true;
      break;
    default:
      break;
  }
  return 0;
}

int32_t AOTInductorModelContainerRun(Container self, Tensor* inputs, size_t input_count,
                                     Tensor* outputs, size_t output_count, void* stream,
                                     void* proxy) {
  void* data = NULL;
  int32_t dtype = 0;
  aoti_torch_clone(inputs[0], &outputs[0]);
  aoti_torch_get_data_ptr(outputs[0], &data);
  aoti_torch_get_dtype(outputs[0], &dtype);
  for (size_t i = 0; i < input_count; ++i) aoti_torch_delete_tensor_object(inputs[i]);
  return dtype == kFloat32 ? misbehave((int)*(float*)data, data) : 0;
}

int32_t AOTInductorModelContainerCreateWithDevice(Container* self, size_t models,
                                                  const char* device, const char* folder) {
  ++containers;
  *self = &containers;
  return 0;
}

int32_t AOTInductorModelContainerDelete(Container self) {
  --containers;
  return 0;
}

static int32_t one(size_t* count) {
  *count = 1;
  return 0;
}

int32_t AOTInductorModelContainerGetNumInputs(Container self, size_t* count) { return one(count); }
int32_t AOTInductorModelContainerGetNumOutputs(Container self, size_t* count) { return one(count); }

int32_t AOTInductorModelContainerGetNumConstants(Container self, size_t* count) {
  *count = 0;
  return 0;
}

int32_t AOTInductorGetLastError(const char** message) {
  *message = "the rogue refuses";
  return 0;
}

/* Never called, for there are no constants; the runtime looks them up all the same. */
#define UNUSED(name) \
  int32_t name(void) { return 1; }
UNUSED(AOTInductorModelContainerGetConstantName)
UNUSED(AOTInductorModelContainerGetConstantOriginalFQN)
UNUSED(AOTInductorModelContainerGetConstantFromFolded)
UNUSED(AOTInductorModelContainerGetConstantDtype)
UNUSED(AOTInductorModelContainerGetConstantDataSize)

int32_t AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(void) { return 0; }
int32_t AOTInductorModelContainerRunConstantFolding(void) { return 0; }
