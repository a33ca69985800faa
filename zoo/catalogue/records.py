"""What the catalogue says of a model: its releases by platform, oldest first, with their figures.

Pages are drawn of these records alone, and they are kept beside the pages: so a promotion reads
the releases of one model, not of the whole store.
"""

from __future__ import annotations

from pydantic import Field

from zoo.base_models import Frozen

__all__ = ["Axis", "CataloguedFile", "CataloguedModel", "CataloguedRelease", "History", "Tensor"]


Axis = int | str


class Tensor(Frozen):
    """An input or output of a program; an axis is a size or a dimension's name.

    `least` is the same with the lowest size of each dimension; of an output it may be empty.
    """

    name: str
    dtype: str
    shape: tuple[Axis, ...]
    least: tuple[int, ...] = ()


class CataloguedFile(Frozen):
    """A file of a release. `key` is where it lies in the store, `name` its path in the bundle."""

    name: str
    key: str
    bytes: int


class CataloguedRelease(Frozen):
    """A promoted release with the figures that its report gives.

    Attributes:
        build_key: 64 hexadecimal digits.
        when: ISO 8601, of its first promotion.
        state: how it was proven: `emulated` or `validated`.
        retracted: the reason, where its use is forbidden.
        bytes: of all files.
        snr_db: the lowest of any output in any case.
        worst_abs: the largest error.
        ratio: the artifact's time over eager's, like for like; None for what was emulated.
        latency_ms: median of one call of all programs.
        accuracy: a fraction, where there is a gate.
        machine: on which it was proven.
    """

    build_key: str
    when: str
    state: str
    retracted: str | None = None
    bytes: int
    snr_db: float | None = None
    worst_abs: float | None = None
    ratio: float | None = None
    latency_ms: float | None = None
    accuracy: float | None = None
    machine: str = ""


class History(Frozen):
    """A model's releases for one platform, in the order of their first promotion.

    `latest` is a build key, None where all were retracted; `files`, `inputs` and `outputs` are the
    latest's; `program` is the first one's name.
    """

    target: str
    platform: str
    releases: tuple[CataloguedRelease, ...]
    latest: str | None
    files: tuple[CataloguedFile, ...] = ()
    program: str = ""
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()

    @property
    def current(self) -> CataloguedRelease | None:
        """The latest release."""
        return next((r for r in self.releases if r.build_key == self.latest), None)


class CataloguedModel(Frozen):
    """A model and all that was promoted of it."""

    name: str
    summary: str = ""
    source: str = ""
    licence: str = ""
    parameters: int | None = None
    random_weights: int | None = None
    speech: bool = False  # whether `menagerie transcribe` takes it
    versions: dict[str, str] = Field(default_factory=dict)
    histories: tuple[History, ...] = ()
