"""The catalogue follows promotions, links what is really there, and escapes what it is given."""

from __future__ import annotations

import base64
import hashlib
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "runtime" / "format"))

from bundle_maker import draft, make_bundle

from menagerie.host import RUNTIME_ABI
from zoo import report
from zoo.catalogue.collect import CataloguedModel, CataloguedRelease, History, collect
from zoo.catalogue.pages import Site, Way, render_catalogue
from zoo.catalogue.site import INDEX, keep_site, update_catalogue
from zoo.errors import NotInStore
from zoo.hub import card
from zoo.report.summary import Summary
from zoo.signing.keyring import Keyring
from zoo.signing.promotion import Promoter
from zoo.store import open_store

if TYPE_CHECKING:
    from zoo.store import Release, Store

_WHEEL = "menagerie-1.0.0-py3-none-manylinux_2_28_x86_64.whl"


class Page(HTMLParser):
    """A page's links, headings, scripts and rows, as a reader without scripts meets them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: dict[str, str] = {}  # where to -> the name under which it is saved
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps every element."""
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag == "a":
            self.links[unquote(found.get("href") or "")] = found.get("download") or ""

    def handle_data(self, data: str) -> None:
        """Keeps all text."""
        self.words += data


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store in a folder; keys and home are the test's own."""
    monkeypatch.delenv("MENAGERIE_ALLOW_UNSIGNED", raising=False)
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def promoter(tmp_path: Path, store: Store) -> Promoter:
    """Signs for that store."""
    return Promoter(store, Keyring.create(tmp_path / "home" / "keys"))


def promote(store: Store, promoter: Promoter, folder: Path, digits: str, **more: Any) -> Release:
    """A tiny bundle, promoted; its library's bytes are its build key's digits."""
    files = {"programs/main/model.so": digits.encode()}
    bundle = make_bundle(folder / f"made-{digits}", files, build_key=digits * 32, **more)
    return promoter.promote(store.propose(bundle))


def test_every_link_of_every_page_leads_somewhere(
    tmp_path: Path, store: Store, promoter: Promoter
) -> None:
    """From `file://` as from a server: relative, to files of the store; the bundle is whole."""
    release = promote(store, promoter, tmp_path, "ab")
    index = tmp_path / "store" / INDEX
    page = index.parent / "models" / "tiny.html"
    assert "models/tiny.html" in Page(index).links
    saved = {}
    for link, name in Page(page).links.items():
        if link.startswith("#"):
            continue
        assert (page.parent / link).resolve().is_file(), link
        saved[name] = (page.parent / link).read_bytes()
    names = {"manifest.json", "signature.json", *release.manifest.listed}
    assert {name.replace("/", "-") for name in names} <= set(saved)
    assert saved["manifest.json"] == release.document


def test_without_its_script_the_list_is_whole(
    tmp_path: Path, store: Store, promoter: Promoter
) -> None:
    """No row is hidden, the search is; whatever runs is allowed by its hash."""
    for digits, name in (("ab", "first"), ("cd", "second")):
        promote(store, promoter, tmp_path, digits, model=name)
    page = Page(tmp_path / "store" / INDEX)
    rows = [found for tag, found in page.elements if tag == "tr" and "data-name" in found]
    assert [row["data-name"].split()[0] for row in rows if row["data-name"]] == ["first", "second"]
    assert not any("hidden" in row for row in rows)
    assert [
        found for _, found in page.elements if found.get("id") == "search" and "hidden" in found
    ]
    policy = next(f["content"] for _, f in page.elements if f.get("http-equiv"))
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_what_was_retracted_is_not_offered(
    tmp_path: Path, store: Store, promoter: Promoter
) -> None:
    """Its page says why; neither its files nor its row are to be had."""
    release = promote(store, promoter, tmp_path, "ab")
    promoter.retract(store.ledgers("tiny")[0], release.build_key, "wrong <b>labels</b>")
    page = Page(tmp_path / "store" / "catalogue" / "models" / "tiny.html")
    assert "retracted: wrong <b>labels</b>" in page.words  # as text, not as markup
    assert not any("blobs/" in link for link in page.links)
    manifest = release.manifest
    for fact in (manifest.source, manifest.licence, *manifest.versions):
        assert fact in page.words.partition("Model card")[2]
    assert "tiny.html" not in " ".join(Page(tmp_path / "store" / INDEX).links)


def test_the_list_sorts_by_speed_and_names_break_between_words(tmp_path: Path) -> None:
    """Ascending is from slower to faster than eager; a busy machine is named at the latency."""

    def listed(name: str, ratio: float, busy: str = "") -> CataloguedModel:
        figures = Summary(ratio=ratio, artifact_ms=3.0, busy=busy)
        facts = {"when": "2026-01-01", "state": "validated", "bytes": 1, "figures": figures}
        release = CataloguedRelease(build_key="ab" * 32, **facts)
        history = History(
            target="cpu", platform="cpu-linux-x86_64", releases=(release,), latest="ab" * 32
        )
        return CataloguedModel(name=name, histories=(history,))

    models = [listed("slow_net", 2.0, "busy machine, load 3.0 by core"), listed("quick_net", 0.5)]
    way = Way(Site(), "store", lambda key, _name="": key, lambda key: key)
    (tmp_path / "index.html").write_text(render_catalogue(models, way))
    page = Page(tmp_path / "index.html")
    orders = [found["data-order"] for _, found in page.elements if "data-order" in found]
    assert [order for order in orders if order in {"0.5", "2.0"}] == ["2.0", "0.5"]  # quick first
    assert [found.get("title") for tag, found in page.elements if tag == "span"].count(
        "busy machine, load 3.0 by core"
    ) == 1
    assert [tag for tag, _ in page.elements].count("wbr") == 2


def test_a_models_page_runs_nothing_but_the_copying_of_commands(
    tmp_path: Path, store: Store, promoter: Promoter
) -> None:
    """The script is our own file, and the policy admits it by its hash alone."""
    promote(store, promoter, tmp_path, "ab")
    page = Page(tmp_path / "store" / "catalogue" / "models" / "tiny.html")
    script = (Path(report.__file__).parent / "templates" / "copy.js").read_text()
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert script.strip() in page.words
    policy = next(f["content"] for _, f in page.elements if f.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in str(policy)


def test_pages_say_where_pip_may_install(tmp_path: Path, store: Store, promoter: Promoter) -> None:
    """Pip refuses a system's own environment; without a wheel there is no line of pip's."""
    page = tmp_path / "store" / "catalogue" / "models" / "tiny.html"
    promote(store, promoter, tmp_path, "ab")
    assert "python3 -m venv" not in Page(page).words
    (tmp_path / _WHEEL).write_bytes(b"PK")
    keep_site(store.objects, Site(), [tmp_path / _WHEEL])
    update_catalogue(store)
    for drawn in (page, tmp_path / "store" / INDEX):
        assert "pip install" in Page(drawn).words
        assert "python3 -m venv menagerie && . menagerie/bin/activate" in Page(drawn).words


def test_a_platform_says_where_its_example_is(
    tmp_path: Path, store: Store, promoter: Promoter
) -> None:
    """Of Linux alone there are standalone folders, which carry one."""
    made = {"machine": "arm64", "runtime_abi": RUNTIME_ABI}
    for digits, system, target, alone in (("ab", "linux", "cpu", 1), ("cd", "darwin", "metal", 0)):
        requires = {"system": system, **made}
        more = {"model": target, "target": target, "requires": requires}
        promote(store, promoter, tmp_path, digits, **more)
        page = Page(tmp_path / "store" / "catalogue" / "models" / f"{target}.html")
        assert page.words.count("of a folder that --standalone made") == alone
        assert "Swift" in page.words
        assert "runtime/examples of Menagerie's source" in page.words


def test_a_second_release_draws_the_first_beside_it(
    tmp_path: Path, store: Store, promoter: Promoter
) -> None:
    """Sizes of two releases have a bar each; the later one is the latest."""
    promote(store, promoter, tmp_path, "ab")
    page = tmp_path / "store" / "catalogue" / "models" / "tiny.html"
    assert not [1 for tag, found in Page(page).elements if found.get("class") == "strip"]
    promote(store, promoter, tmp_path, "cd")
    drawn = Page(page)
    assert len([1 for tag, found in drawn.elements if found.get("class") == "strip"]) == 2
    table = drawn.words[drawn.words.index("promoted") :]
    assert table.index("cd" * 6) < table.index("ab" * 6)


def test_an_update_of_one_model_keeps_the_others(
    tmp_path: Path, store: Store, promoter: Promoter
) -> None:
    """Only the named one is read again; a whole update finds the same."""
    for digits, name in (("ab", "first"), ("cd", "second")):
        promote(store, promoter, tmp_path, digits, model=name)
    index = tmp_path / "store" / INDEX
    before = index.read_bytes()
    assert update_catalogue(store, ["first"]) == 2
    assert index.read_bytes() == before
    assert update_catalogue(store) == 2
    assert index.read_bytes() == before


def test_the_code_to_copy_gives_sizes_that_the_program_takes(
    tmp_path: Path, store: Store, promoter: Promoter
) -> None:
    """A dynamic axis by its lowest size, in the input's own dtype."""
    [program] = draft().programs
    low = {name: (3, high, step) for name, (_, high, step) in program.dimensions.items()}
    bundle = make_bundle(tmp_path / "made", programs=(replace(program, dimensions=low),))
    promoter.promote(store.propose(bundle))
    page = Page(tmp_path / "store" / "catalogue" / "models" / "tiny.html")
    [given] = program.inputs
    sizes = tuple(3 if isinstance(axis, str) else axis for axis in given.shape)
    assert f'"{given.name}": np.zeros({sizes}, "{given.dtype.value}")' in page.words


def test_a_model_that_is_not_promoted_has_no_page(store: Store, promoter: Promoter) -> None:
    """A misspelt name is reported, and leaves nothing behind."""
    del promoter
    with pytest.raises(NotInStore, match="nothing of tiyn was promoted"):
        update_catalogue(store, ["tiyn"])
    assert store.objects.list_keys("catalogue/") == []


def test_precisions_of_a_model_are_side_by_side(
    tmp_path: Path, store: Store, promoter: Promoter
) -> None:
    """On the page of each, linked to one another; a later precision redraws the earlier pages."""
    promote(store, promoter, tmp_path, "ab", model="net")
    promote(store, promoter, tmp_path, "cd", model="net_of_float16")
    pages = tmp_path / "store" / "catalogue" / "models"
    assert "side by side" not in Page(pages / "net.html").words
    promote(store, promoter, tmp_path, "ef", model="net_int8_weight_only")
    plain, rounded = Page(pages / "net.html"), Page(pages / "net_int8_weight_only.html")
    for page in (plain, rounded):
        assert "side by side" in page.words
        assert page.words.index("float32") < page.words.index("int8-weight-only")
    assert "net_int8_weight_only.html" in plain.links
    assert "net.html" in rounded.links
    assert "side by side" not in Page(pages / "net_of_float16.html").words


def test_a_name_like_a_precisions_is_nothing_by_itself(
    tmp_path: Path, store: Store, promoter: Promoter
) -> None:
    """The model that it would be a precision of is not released."""
    promote(store, promoter, tmp_path, "ab", model="net_float16")
    page = Page(tmp_path / "store" / "catalogue" / "models" / "net_float16.html")
    assert "side by side" not in page.words


@pytest.mark.parametrize(
    ("speech", "heading"), [(True, "1 \u2212 word errors"), (False, "accuracy")]
)
def test_the_card_says_what_its_shares_are(
    tmp_path: Path, store: Store, promoter: Promoter, *, speech: bool, heading: str
) -> None:
    """A recogniser's is not one of samples."""
    promote(store, promoter, tmp_path, "ab", model="net")
    model = collect(store, "net").model_copy(update={"speech": speech})
    way = Way(Site(), "hf://o/net", lambda key, *_: key, lambda _: None)
    assert f"| worst SNR | {heading} |" in card(model, way)
