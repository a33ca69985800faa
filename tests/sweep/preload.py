"""What every process of the sweep needs, imported once: the server of forks preloads it."""

import transforms  # noqa: F401
from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    import torchvision  # noqa: F401
    import transformers  # noqa: F401
