"""Where the work of a run is done: `placement.toml` beside this file, or the operator's own."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from transforms.targets import all_targets, target_named
from zoo.errors import UsageError
from zoo.frozen import Frozen

__all__ = ["BatchRule", "Placement", "Pool", "TargetPlaces", "load_placement"]

_VARIABLE = "MENAGERIE_PLACEMENT"


class TargetPlaces(Frozen):
    """Pools of one target."""

    convert: str
    confirm: str | None = None


class Pool(Frozen):
    """A work pool."""

    worker: str = Field(description="what a person has to start for it, e.g. `a Mac`")


class BatchRule(Frozen):
    """How much work goes into one deployment run."""

    seconds: float = Field(gt=0)
    most: int = Field(ge=1, le=100)
    unknown_seconds: float = Field(gt=0)


class Placement(Frozen):
    """Who works where."""

    targets: dict[str, TargetPlaces] = Field(default_factory=dict)
    pools: dict[str, Pool]
    batches: BatchRule

    @model_validator(mode="after")
    def _complete(self) -> Placement:
        if strange := sorted(self.targets.keys() - all_targets().keys()):
            raise ValueError(f"there is no target {strange[0]!r}")
        for target in all_targets():
            places = self.places(target)
            for pool in (places.convert, places.confirm):
                if pool is not None and pool not in self.pools:
                    raise ValueError(f"target {target} names the unknown pool {pool!r}")
        return self

    def places(self, target: str) -> TargetPlaces:
        """Where a target's work is done: as the operator says, else as the target itself does."""
        if target in self.targets:
            return self.targets[target]
        known = target_named(target)
        return TargetPlaces(convert=known.convert_pool, confirm=known.confirm_pool)


def load_placement() -> Placement:
    """The placement in the file that MENAGERIE_PLACEMENT names, else Menagerie's own.

    Raises:
        UsageError: the file cannot be read or says something that cannot be.
    """
    path = Path(os.environ.get(_VARIABLE) or Path(__file__).with_name("placement.toml"))
    try:
        return Placement.model_validate(tomllib.loads(path.read_text()))
    except OSError as error:
        raise UsageError(str(path), f"cannot be read ({error.strerror})") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(str(path), f"is no TOML: {error}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise UsageError(f"{path}: {where}".rstrip(": "), fault["msg"]) from error
