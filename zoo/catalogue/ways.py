"""How a reader gets from a page of the catalogue to other pages and to files of the store."""

from __future__ import annotations

import posixpath
import shlex
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from pydantic import Field

from menagerie.figures import shown_address
from zoo.base_models import Frozen
from zoo.catalogue.pages import pull_command
from zoo.errors import UsageError
from zoo.store.base import LINK_SECONDS, content_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.catalogue.collect import CataloguedModel, History
    from zoo.store.base import ObjectStore

__all__ = ["CATALOGUE", "INDEX", "ROOT", "WHEELS", "RelativeWay", "SignedWay", "Site", "Way"]

CATALOGUE: Final = "catalogue/"
INDEX: Final = f"{CATALOGUE}index.html"
ROOT: Final = f"{CATALOGUE}root.json"
WHEELS: Final = f"{CATALOGUE}wheels/"
_SHARED: Final = f"{CATALOGUE}shared/"


class Site(Frozen):
    """What the store's owner said of its site.

    Attributes:
        address: at which a web server shows the store to everybody; None where none does.
        wheels: file names of the small package under `WHEELS`, one a platform.
    """

    address: str | None = None
    wheels: tuple[str, ...] = Field(default=())

    def at(self, address: str) -> Site:
        """The site at another address; an empty one means that there is none.

        Raises:
            UsageError: no browser finds it.
        """
        parts = urlsplit(address)
        web = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
        if address and (not web or parts.query or parts.fragment):
            advice = "Give the address at which a web server shows it: https://models.example/zoo"
            raise UsageError(shown_address(address), "is not the address of a site", advice)
        return self.model_copy(update={"address": address.rstrip("/") or None})

    def with_wheel(self, name: str) -> Site:
        """The site with this wheel in the place of an earlier one for the same platform."""
        others = [each for each in self.wheels if _platform_tag(each) != _platform_tag(name)]
        return self.model_copy(update={"wheels": tuple(sorted([*others, name]))})

    def wheel_for(self, platform: str) -> str | None:
        """The wheel for a release's platform, as `cpu-linux-x86_64`."""
        _, system, machine = platform.split("-", 2)
        known = {"linux": "linux", "macos": "macosx"}.get(system, system)
        machines = (machine, "aarch64") if machine == "arm64" else (machine, "universal2")
        tags = {name: _platform_tag(name) for name in self.wheels}
        return next((n for n, t in tags.items() if known in t and t.endswith(machines)), None)


def _platform_tag(wheel: str) -> str:
    return wheel.removesuffix(".whl").rpartition("-")[2]


class Way(ABC):
    """Addresses as one page's reader needs them.

    Args:
        site: what its owner said.
        store: what commands name as the store.
    """

    def __init__(self, site: Site, store: str) -> None:
        self.site = site
        self.store = store

    @abstractmethod
    def link(self, key: str, name: str = "") -> str:
        """What a link on the page says; a file that it leads to is saved as `name`."""

    @abstractmethod
    def whole(self, key: str) -> str | None:
        """The address of a file by itself, for commands; None where there is none."""

    def first_lines(self, model: CataloguedModel, history: History) -> str:
        """Commands with which a stranger gets from nothing to the latest release of a platform."""
        wheel = self.site.wheel_for(history.platform)
        package = None if wheel is None else self.whole(WHEELS + wheel)
        root = self.whole(ROOT)
        return "\n".join(
            [
                *([] if package is None else [f"pip install {shlex.quote(package)}"]),
                *([] if root is None else [f"menagerie trust {shlex.quote(root)}"]),
                pull_command(model, history, self.store),
            ]
        )


class RelativeWay(Way):
    """Of a page in a folder or behind a web server: links work wherever the whole store is shown.

    Args:
        site: what its owner said.
        store: the store's own address.
        page: the key of the page.
    """

    def __init__(self, site: Site, store: str, page: str) -> None:
        super().__init__(site, site.address or store)
        self._folder = posixpath.dirname(page)

    def link(self, key: str, name: str = "") -> str:  # noqa: ARG002 - the page says it
        """From the page's own folder."""
        return quote(posixpath.relpath(key, self._folder))

    def whole(self, key: str) -> str | None:
        """Below the site's address, or the folder's."""
        return (
            None if self.store.startswith("s3:") else f"{self.store.removeprefix('file://')}/{key}"
        )


class SignedWay(Way):
    """Of a page in a private bucket: each link carries a signature and is good for a week.

    Pages link the copies of one another that were made with such links.
    """

    def __init__(self, site: Site, objects: ObjectStore, is_page: Callable[[str], bool]) -> None:
        super().__init__(site, objects.url)
        self._objects = objects
        self._is_page = is_page

    def copy_of(self, page: str) -> str:
        """The key of a page's copy."""
        return _SHARED + page.removeprefix(CATALOGUE)

    def link(self, key: str, name: str = "") -> str:
        """Signed."""
        place = self.copy_of(key) if self._is_page(key) else key
        saved = name or posixpath.basename(key)
        return self._objects.link(place, saved, content_type(saved), LINK_SECONDS) or ""

    def whole(self, key: str) -> str | None:
        """The same."""
        return self.link(key)
