/* A model library that does nothing but say how many inputs it has. */
#include <stddef.h>
#include <stdint.h>

extern size_t aoti_torch_of_tomorrow; /* which no runtime has */

#define OTHER(name) \
  int32_t AOTInductor##name(void) { return 0; }
OTHER(ModelContainerCreateWithDevice)
OTHER(ModelContainerDelete)
OTHER(ModelContainerRun)
OTHER(ModelContainerGetNumConstants)
OTHER(ModelContainerGetConstantName)
OTHER(ModelContainerGetConstantOriginalFQN)
OTHER(ModelContainerGetConstantFromFolded)
OTHER(ModelContainerGetConstantDtype)
OTHER(ModelContainerGetConstantDataSize)
OTHER(ModelContainerUpdateUserManagedConstantBufferPairs)
OTHER(ModelContainerRunConstantFolding)
OTHER(ModelContainerGetNumOutputs)
OTHER(GetLastError)

int32_t AOTInductorModelContainerGetNumInputs(void* container, size_t* count) {
  (void)container;
  *count = MENAGERIE_ANSWER;
  return 0;
}
