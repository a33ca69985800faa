/* Runs the first program of a bundle on zeros and prints the shape and first elements of each
 * output.
 *
 * In a folder of `menagerie pull --standalone`, which has this file (c++ takes it as well):
 *
 *     cc examples/run.c -Iinclude -L. -lmenagerie_cpu -Wl,-rpath,'$ORIGIN' -o run
 *     ./run bundle roots
 */
#include <menagerie.h>
#include <stdio.h>
#include <stdlib.h>

/* What `status` says went wrong, and the end. */
static void check(menagerie_status status) {
  if (status == MENAGERIE_OK) return;
  fprintf(stderr, "%s\n", menagerie_last_error());
  exit(1);
}

static size_t bytes_of(int32_t dtype) {
  switch (dtype) {
    case MENAGERIE_INT64:
    case MENAGERIE_FLOAT64:
      return 8;
    case MENAGERIE_INT32:
    case MENAGERIE_FLOAT32:
      return 4;
    case MENAGERIE_INT16:
    case MENAGERIE_FLOAT16:
    case MENAGERIE_BFLOAT16:
      return 2;
    default:
      return 1;
  }
}

/* Zeros of the lowest sizes that an input may have. */
static menagerie_tensor zeros(const menagerie_tensor_spec* spec) {
  menagerie_tensor tensor = {0};
  tensor.dtype = spec->dtype;
  tensor.dimensions = spec->dimensions;
  int64_t elements = 1;
  for (int32_t axis = spec->dimensions - 1; axis >= 0; --axis) {
    tensor.sizes[axis] = spec->lowest[axis];
    tensor.strides[axis] = elements;
    elements *= spec->lowest[axis];
  }
  tensor.data = calloc(elements > 0 ? (size_t)elements : 1, bytes_of(spec->dtype));
  if (tensor.data == NULL) exit(1);
  return tensor;
}

static void print(const char* name, const menagerie_tensor* tensor) {
  printf("%s: [", name);
  int64_t elements = 1;
  for (int32_t axis = 0; axis < tensor->dimensions; ++axis) {
    printf("%s%lld", axis ? ", " : "", (long long)tensor->sizes[axis]);
    elements *= tensor->sizes[axis];
  }
  printf("]");
  if (tensor->dtype == MENAGERIE_FLOAT32 && tensor->dimensions > 0) {
    const int64_t step = tensor->strides[tensor->dimensions - 1];
    for (int64_t i = 0; i < tensor->sizes[tensor->dimensions - 1] && i < 4 && elements > 0; ++i) {
      printf(" %.9g", (double)((const float*)tensor->data)[i * step]);
    }
  }
  printf("\n");
}

int main(int count, char** values) {
  if (count != 3) {
    fprintf(stderr, "usage: run BUNDLE TRUST\n");
    return 2;
  }
  menagerie_bundle* bundle;
  menagerie_program* program;
  check(menagerie_bundle_open_signed(values[1], values[2], &bundle));
  check(menagerie_program_open(bundle, menagerie_bundle_program_name(bundle, 0), 0, &program));
  const size_t taken = menagerie_program_input_count(program);
  const size_t given = menagerie_program_output_count(program);
  menagerie_tensor* inputs = (menagerie_tensor*)calloc(taken ? taken : 1, sizeof *inputs);
  menagerie_tensor* outputs = (menagerie_tensor*)calloc(given, sizeof *outputs);
  if (inputs == NULL || outputs == NULL) return 1;
  for (size_t i = 0; i < taken; ++i) {
    menagerie_tensor_spec spec;
    check(menagerie_program_input(program, i, &spec));
    inputs[i] = zeros(&spec);
  }
  check(menagerie_program_run(program, inputs, taken, outputs, given));
  for (size_t i = 0; i < given; ++i) {
    menagerie_tensor_spec spec;
    check(menagerie_program_output(program, i, &spec));
    print(spec.name, &outputs[i]); /* the outputs' memory is the program's */
  }
  for (size_t i = 0; i < taken; ++i) free(inputs[i].data);
  free(inputs);
  free(outputs);
  menagerie_program_close(program);
  menagerie_bundle_close(bundle);
  return 0;
}
