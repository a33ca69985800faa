"""A model's releases on the Hugging Face Hub.

The repository holds what `menagerie pull hf://ORG/NAME` reads (`menagerie.store.hub`): a bundle's
folder per platform, and beside them a model card, the root to trust, and the small package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from huggingface_hub import HfApi, ModelCardData, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError
from markupsafe import Markup

from menagerie.format.bundle_manifest import MANIFEST
from menagerie.store.base import Progress, silent
from menagerie.store.hub import endpoint, repository
from menagerie.trust import trusted_roots
from zoo.catalogue.collect import CataloguedModel, collect
from zoo.catalogue.pages import (
    CATALOGUE,
    MODEL_SIGNING_KEY,
    ROOT,
    WHEELS,
    Site,
    Way,
    first_lines,
    snippets,
)
from zoo.catalogue.site import newest_root
from zoo.errors import NotInStore, StoreError, StoreUnreachable, UsageError
from zoo.report.page import render_markdown
from zoo.signing.keyring import keys_folder

if TYPE_CHECKING:
    from zoo.store import Release, Store

_MOST_KEY_BYTES = 2**20
_OF_A_NEW_ONE = {".gitattributes", "README.md"}
# The error class of the Hub client's HTTP library, which differs between versions.
_CLIENT_ERROR = cast("type[Exception]", HfHubHTTPError.__bases__[0])


@dataclass(frozen=True)
class Pushed:
    """The state of the Hub after a push.

    Attributes:
        address: address of the repository's page.
        commit: the commit's hexadecimal name; the last commit's if nothing had changed.
        platforms: platforms that the repository now holds.
        lacking: lines that the card lacks, each with the next step.
    """

    address: str
    commit: str
    platforms: tuple[str, ...]
    lacking: tuple[str, ...]


def push(
    store: Store,
    address: str,
    model: str = "",
    *,
    server: str = "",
    private: bool = False,
    wheels: Sequence[Path] = (),
    progress: Progress = silent,
) -> Pushed:
    """Replace a repository's content by a model's latest releases.

    Unsigned content of the store is not pushed: root and key are this machine's own, and the
    wheels are the caller's.

    Args:
        store: the store of the releases.
        address: `hf://ORG/NAME`; a missing repository is created.
        model: the model's name in the store; empty: the repository's name.
        server: the Hub's address; empty: `$HF_ENDPOINT`, or the public Hub.
        private: whether only the repository's organisation can see it.
        wheels: the small package, one file per platform.
        progress: called with bytes done and bytes in total while releases are fetched.

    Raises:
        NotInStore: no release of the model was promoted, or all were retracted.
        Untrusted: no trusted key has signed a release.
        UsageError: `address` names a revision or nothing, the repository holds foreign files or is
        public although `private` is set, or the Hub refuses the caller.
        StoreError: the upload to the Hub failed.
    """
    name, revision = repository(address)
    if revision != "main":
        raise UsageError(address, "names a revision, which a push makes", f"Give hf://{name}")
    catalogued = collect(store, model or name.partition("/")[2])
    latest = [(h.target, h.latest, h.platform) for h in catalogued.histories if h.latest]
    if not latest:
        fact = f"no release of {catalogued.name} may be used any more"
        raise NotInStore(store.url, fact, f"Delete {address}: a copy there knows no retraction")
    constants.HF_HUB_DISABLE_XET = True  # untested; the Hub accepts LFS from every client
    hub = HfApi(endpoint=endpoint(server), library_name="menagerie")
    with _errors(hub.endpoint), TemporaryDirectory(prefix="menagerie-push-") as scratch:
        folder = Path(scratch)
        for target, build, platform in latest:
            release: Release = store.find(catalogued.name, target, build)
            store.pull(release, folder / platform, progress)
        way = _fill(store, folder, f"{hub.endpoint}/{name}", wheels)
        (folder / "README.md").write_text(card(catalogued, way), encoding="utf-8")
        platforms = tuple(platform for *_, platform in latest)
        with _repository(hub, name, private=private):
            made = hub.upload_folder(
                repo_id=name,
                folder_path=folder,
                commit_message=", ".join(f"{each} {build[:12]}" for _, build, each in latest),
                delete_patterns="*",
            )
    lacking = tuple(_lacking(way, platforms))
    return Pushed(f"{hub.endpoint}/{name}", made.oid, platforms, lacking)


@contextmanager
def _repository(hub: HfApi, name: str, *, private: bool) -> Iterator[None]:
    """Create the repository if it is missing; delete it again if the block fails."""
    with ExitStack() as failing:
        try:
            hub.create_repo(name, private=private or None)
        except HfHubHTTPError as error:
            if error.response.status_code != HTTPStatus.CONFLICT:
                raise
            _require_ours(hub, name, private=private)
        else:
            failing.callback(hub.delete_repo, name, missing_ok=True)
        yield
        failing.pop_all()


def _lacking(way: Way, platforms: Iterable[str]) -> Iterator[str]:
    if not any(map(way.site.wheel_for, platforms)):
        yield "pip install: no wheel for its platforms; `make wheel`, or name one by --wheel"
    if way.whole(ROOT) is None:
        yield "menagerie trust: the store's newest root is not trusted here; `zoo keys trust FILE`"


def card(model: CataloguedModel, way: Way) -> str:
    """Return the model card: metadata for the Hub's filters, first commands, and figures.

    The model must have a usable release; `way` has the addresses of the repository's files.
    """
    current = [history for history in model.histories if history.current is not None]
    known, _, own = model.licence.lower().partition("licenseref-")
    facts = ModelCardData(
        license=known.removesuffix("-only").removesuffix("-or-later") or "other",
        license_name=own or None,
        library_name="menagerie",
        pipeline_tag="automatic-speech-recognition" if model.speech else None,
        tags=["menagerie", *sorted(history.platform for history in current)],
    )
    others = snippets(model, current[0], way)[1:]  # `first_lines` has the first one
    return render_markdown(
        "card.md.j2",
        facts=Markup(facts.to_yaml()),  # noqa: S704 - from a YAML writer
        model=model,
        current=current,
        first_lines=Markup(first_lines([(model, h) for h in current], way)),  # noqa: S704 - ours
        snippets=[(each.purpose, Markup(each.line.strip())) for each in others],  # noqa: S704 - ours
    )


def _require_ours(hub: HfApi, name: str, *, private: bool) -> None:
    """Refuse a repository with foreign files, because a push replaces everything."""
    info = hub.model_info(name)
    if private and not info.private:
        raise UsageError(f"hf://{name}", "is there, and public", "Make it private first")
    held = {each.rfilename for each in info.siblings or ()}
    if held - _OF_A_NEW_ONE and not any(each.endswith(f"/{MANIFEST}") for each in held):
        fact = "contains other files, which a push would remove"
        raise UsageError(f"hf://{name}", fact, "Name another repository, or empty this one")


def _fill(store: Store, folder: Path, address: str, wheels: Sequence[Path]) -> Way:
    """Put root, key and wheels beside the releases; return the addresses for readers."""
    contents, site = {}, Site()
    shown = newest_root(store.objects)
    if shown in {root.document for root in trusted_roots()}:
        contents[ROOT] = shown
    own = keys_folder() / "model-signing.pub"
    shown = store.objects.read_if_there(MODEL_SIGNING_KEY, _MOST_KEY_BYTES)
    if own.is_file() and shown == own.read_bytes():
        contents[MODEL_SIGNING_KEY] = shown
    for wheel in wheels:
        site = site.with_wheel(wheel.name)
        contents[WHEELS + wheel.name] = wheel.read_bytes()
    for key, content in contents.items():
        place = folder / key.removeprefix(CATALOGUE)
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content or b"")

    def link(key: str, _name: str = "") -> str:
        return f"{address}/resolve/main/{quote(key.removeprefix(CATALOGUE))}"

    named = f"hf://{'/'.join(address.split('/')[-2:])}"
    return Way(site, named, link, lambda key: link(key) if key in contents else None)


@contextmanager
def _errors(server: str) -> Iterator[None]:
    advice = "Log in with a token that may write: hf auth login, or set HF_TOKEN"
    try:
        yield
    except LocalTokenNotFoundError:
        raise UsageError(server, "authentication failed: no token was found", advice) from None
    except HfHubHTTPError as error:
        status, said = error.response.status_code, error.server_message or "nothing more"
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise UsageError(server, f"refused access ({status}): {said}", advice) from None
        raise StoreError(server, f"answers {status}: {said}", "Push again later") from None
    except HFValidationError as error:
        fact = f"refused the name: {error}"
        raise UsageError(server, fact, "Name another repository") from None
    except ValueError as error:
        fact = " ".join(str(error).split())
        if isinstance(error.__cause__, HfHubHTTPError):  # the Hub refused the card
            raise StoreError(server, fact, "Give an SPDX licence, or LicenseRef-NAME") from None
        raise StoreError(server, f"does not answer as a Hub: {fact}", "Check --endpoint") from None
    except RuntimeError as error:  # from uploads; its cause has the details
        fact = ": ".join(str(each).strip() for each in (error, error.__cause__) if each)
        raise StoreError(server, fact, "Push again later") from None
    except _CLIENT_ERROR as error:
        fact = f"cannot be reached: {error}"
        raise StoreUnreachable(server, fact, "Check --endpoint and the network") from None
