/* The public C API of the Menagerie runtime: open a bundle folder, open a program, run it.
 *
 *     menagerie_bundle* bundle;
 *     menagerie_program* program;
 *     if (menagerie_bundle_open("resnet18.bundle", &bundle) ||
 *         menagerie_program_open(bundle, "main", 0, &program) ||
 *         menagerie_program_run(program, &input, 1, &output, 1))
 *       fprintf(stderr, "%s\n", menagerie_last_error());
 *
 * Every function that can fail returns MENAGERIE_OK or MENAGERIE_ERROR and then leaves one line in
 * menagerie_last_error() of the calling thread.
 *
 * Different programs may run in different threads at once. Runs of one program, from whatever
 * threads, are served one after another, but each takes back the outputs of the run before it:
 * threads that share a program hold a lock of their own from before a run until they have read its
 * outputs. Nothing may be called on a program or bundle while it is being closed, or after.
 *
 * A program may keep state between runs, such as a cache of keys and values: it is the program's
 * own. Another program opened from the same bundle, under the same name too, has another, and one
 * just opened has the first; the weights that no run changes are shared. Threads that share a
 * program share its state.
 *
 * The weights are mapped from their file: who cuts it short, or writes into it, while a bundle is
 * open ends the process by SIGBUS or changes what it computes. Keep bundles where their user alone
 * may write. After a run with several threads, a child of fork() cannot run with several: the
 * threads stay with the parent. Open programs after forking, or run with one.
 */
#ifndef MENAGERIE_H
#define MENAGERIE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MENAGERIE_API __attribute__((visibility("default")))
#define MENAGERIE_RUNTIME_ABI 3
#define MENAGERIE_MAX_DIMENSIONS 16

typedef struct menagerie_bundle menagerie_bundle;
typedef struct menagerie_program menagerie_program;

typedef enum { MENAGERIE_OK = 0, MENAGERIE_ERROR = 1 } menagerie_status;

/* The numbers are those of the shim ABI, so they never change. */
typedef enum {
  MENAGERIE_UINT8 = 0,
  MENAGERIE_INT8 = 1,
  MENAGERIE_INT16 = 2,
  MENAGERIE_INT32 = 3,
  MENAGERIE_INT64 = 4,
  MENAGERIE_FLOAT16 = 5,
  MENAGERIE_FLOAT32 = 6,
  MENAGERIE_FLOAT64 = 7,
  MENAGERIE_BOOL = 11,
  MENAGERIE_BFLOAT16 = 15
} menagerie_dtype;

/* A view of memory: sizes and strides count elements, data points at the first one. */
typedef struct {
  void* data;
  int32_t dtype;
  int32_t dimensions;
  int64_t sizes[MENAGERIE_MAX_DIMENSIONS];
  int64_t strides[MENAGERIE_MAX_DIMENSIONS];
} menagerie_tensor;

/* What a program takes or gives. An axis with lowest == highest is fixed, others take multiples of
 * step; a highest of -1 means not known before the run. */
typedef struct {
  const char* name;
  int32_t dtype;
  int32_t dimensions;
  int64_t lowest[MENAGERIE_MAX_DIMENSIONS];
  int64_t highest[MENAGERIE_MAX_DIMENSIONS];
  int64_t step[MENAGERIE_MAX_DIMENSIONS];
} menagerie_tensor_spec;

/* One line: version of the runtime and of its kernel library. */
MENAGERIE_API const char* menagerie_version(void);

/* The calling thread's last error, or an empty string. Valid until its next failing call. */
MENAGERIE_API const char* menagerie_last_error(void);

/* Opens a bundle folder: reads manifest.json, checks what this machine must offer, maps the
 * weights. Programs keep what they need of it alive: closing the bundle first is allowed. */
MENAGERIE_API menagerie_status menagerie_bundle_open(const char* folder, menagerie_bundle** bundle);
/* The same, once `signature.json` in the folder has been found to be over the very bytes of the
 * manifest, by enough of the keys that `trust` names: a root's metadata of The Update Framework, or
 * a folder of them. A bundle is native code: open what comes from elsewhere so. */
MENAGERIE_API menagerie_status menagerie_bundle_open_signed(const char* folder, const char* trust,
                                                            menagerie_bundle** bundle);
MENAGERIE_API void menagerie_bundle_close(menagerie_bundle* bundle);
MENAGERIE_API size_t menagerie_bundle_program_count(const menagerie_bundle* bundle);
MENAGERIE_API const char* menagerie_bundle_program_name(const menagerie_bundle* bundle,
                                                        size_t index);

/* Checks every file's size and sha256 against the manifest. Reads the whole bundle. */
MENAGERIE_API menagerie_status menagerie_bundle_verify(const menagerie_bundle* bundle);

/* 0 if the holder of the Ed25519 key (RFC 8032) signed the message, else 1. */
MENAGERIE_API int menagerie_ed25519_check(const uint8_t signature[64], const uint8_t key[32],
                                          const uint8_t* message, size_t bytes);

/* Loads a program. threads = 0: one for each processor that the process may use (its affinity, the
 * quota of its control group), and one in all for kernels of little work, judged by shapes alone.
 * On a busy machine idle threads sleep instead of spinning. */
MENAGERIE_API menagerie_status menagerie_program_open(menagerie_bundle* bundle, const char* name,
                                                      int32_t threads, menagerie_program** program);
MENAGERIE_API void menagerie_program_close(menagerie_program* program);

MENAGERIE_API size_t menagerie_program_input_count(const menagerie_program* program);
MENAGERIE_API size_t menagerie_program_output_count(const menagerie_program* program);
MENAGERIE_API menagerie_status menagerie_program_input(const menagerie_program* program,
                                                       size_t index, menagerie_tensor_spec* spec);
MENAGERIE_API menagerie_status menagerie_program_output(const menagerie_program* program,
                                                        size_t index, menagerie_tensor_spec* spec);

/* Threads of the following runs; weights are packed again for a number not used before. */
MENAGERIE_API menagerie_status menagerie_program_set_threads(menagerie_program* program,
                                                             int32_t threads);

/* Runs the program on inputs in the order of menagerie_program_input. Inputs are only read, only
 * during the call, and may have any strides that are not negative. The outputs' memory belongs to
 * the program and stays valid, and unchanged, until its next run in any thread, even one that
 * fails, its reset, or its closing. */
MENAGERIE_API menagerie_status menagerie_program_run(menagerie_program* program,
                                                     const menagerie_tensor* inputs,
                                                     size_t input_count, menagerie_tensor* outputs,
                                                     size_t output_count);

/* Gives the program the state that it was opened with; of no effect where it keeps none. A run that
 * fails once it has begun to compute loses the state: then every run fails until this is called. It
 * may change the outputs of the run before. */
MENAGERIE_API menagerie_status menagerie_program_reset(menagerie_program* program);

/* How many kernels (convolutions, matrix products ...) all runs of this program have called. */
MENAGERIE_API uint64_t menagerie_program_kernel_calls(const menagerie_program* program);

/* All calls of one kernel since profiling began. The name is of a generated kernel or of a fallback
 * kernel with its operands' sizes, and is valid until the program's next call. flops counts a
 * multiplication and an addition as two, of products, convolutions and attention alone; bytes are
 * those of the operands and the result, each once. */
typedef struct {
  const char* name;
  uint64_t calls;
  double milliseconds;
  double flops;
  double bytes;
} menagerie_kernel_time;

/* From now on the time of each kernel is noted (on = 1), or no more (0); what was noted is
 * forgotten. A GPU's kernels run on after their call, so of them it tells nothing. */
MENAGERIE_API menagerie_status menagerie_program_set_profiling(menagerie_program* program, int on);

/* How many kernels have been noted; the first `room` of them, by name, are written to `times`. */
MENAGERIE_API menagerie_status menagerie_program_kernel_times(menagerie_program* program,
                                                              menagerie_kernel_time* times,
                                                              size_t room, size_t* count);

/* The most that this machine does with so many threads, measured in some tenths of a second: FLOPs
 * a second of a large product, bytes a second that a copy reads and writes. Fails on a GPU. */
MENAGERIE_API menagerie_status menagerie_machine_peaks(int32_t threads, double* flops,
                                                       double* bytes);

#ifdef __cplusplus
}
#endif

#endif
