"""The command line for artifacts: pull, verify, run, bench, transcribe.

`menagerie` is only this, with numpy; `zoo` mounts the same commands with its own default store.
Imports are made when a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from menagerie.errors import MenagerieError, NotInStore, UsageError
from menagerie.figures import printable
from menagerie.paths import home
from menagerie.terminal import Status, columns, painted, write_json, written_out

if TYPE_CHECKING:
    from menagerie.store import Release, ReleaseReader
    from menagerie.validation.findings import ValidationReport

SUMMARIES = {
    "pull": "Download a release; every file's sha256 is checked before anything appears.",
    "verify": "Prove an artifact on this machine: its golden cases, in a fresh process.",
    "run": "Run an artifact on pictures, recordings or sentences, or on numpy files.",
    "bench": "Time an artifact on its largest golden input.",
    "transcribe": "Write down what recordings say.",
    "trust": "Trust a publisher's root.json; without one, say who is trusted.",
    "version": "Say what is installed, and what it can run.",
}

_EXAMPLES = {
    "pull": """\
  {0} pull resnet18 --store https://models.example/zoo -o out
  {0} pull resnet18 --no-goldens
  {0} pull resnet18 --zip -o resnet18.zip
  {0} pull resnet18 --platform cpu-linux-arm64
  {0} pull hf://example/resnet18 -o out
  {0} pull resnet18 --standalone --runtime dist/menagerie-*.whl -o alone""",
    "verify": """\
  {0} verify out
  {0} verify resnet18 --target metal""",
    "run": """\
  {0} run efficientnet_lite0 picture.png
  {0} run silero_vad recording.wav
  {0} run minilm_l6 "a sentence" "another"
  {0} run mtcnn photo.jpg --picture out.png
  {0} run out --input x.npy --output y.npy
  {0} run out -i input_features=f.npy -i attention_mask=m.npy -o all.npz""",
    "bench": """\
  {0} bench out --threads 2
  {0} bench resnet18 --profile""",
    "transcribe": """\
  {0} transcribe spoken_digits recording.wav
  {0} transcribe out *.flac --format srt --output captions
  arecord -f S16_LE -r 16000 -t raw | {0} transcribe out - --chunk 5""",
    "trust": """\
  {0} trust root.json
  {0} trust https://models.example/zoo/root.json""",
    "version": "  {0} version --json",
}
_NOTES = {
    "run": "numpy has no bfloat16: inputs of it are given as float32, outputs written as float32.",
    "bench": """\
A profile is of the CPU alone: each kernel with its share of the time, and of what this machine can
do at most, which is measured beforehand (its roofline). More than that is possible where operands
are in a cache, and by Winograd's algorithm, which multiplies less often than the convolution whose
operations are counted.""",
}
_EXIT_CODES = "exit codes: 0 done, 1 it failed, 2 misuse, 130 interrupted"
_NATIVE = "A bundle is native code: run only what you trust."
_INTERRUPTED = 130  # 128 + SIGINT, as in shells
_WEEK = 7 * 86400.0


def _store_of_the_environment(given: str | None) -> str:
    if place := given or os.environ.get("MENAGERIE_STORE"):
        return place
    if (own := home() / "store").is_dir():  # the default store of `zoo convert`
        return str(own)
    raise UsageError("menagerie", "no store", "Name one by --store or MENAGERIE_STORE")


@dataclass(frozen=True)
class Host:
    """The properties of the program that offers these commands."""

    program: str = "menagerie"  # its name
    # Returns the store's address for the value of `--store`.
    store: Callable[[str | None], str] = _store_of_the_environment
    # Returns the target's name for the value of `--target`; raises UsageError for an unknown one.
    target: Callable[[str], str] = str
    # The store without `--store`, for the help.
    default_store: str = "$MENAGERIE_STORE, or where zoo publishes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line of `menagerie`; return its exit code."""
    try:
        return written_out(lambda: carry_out(arguments, Host()))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    except (MenagerieError, OSError) as error:
        if os.environ.get("MENAGERIE_DEBUG"):
            raise
        message = str(error)
        if isinstance(error, OSError):
            message = f"{error.filename or 'system'}: {error.strerror or error}"
        sys.stderr.write(f"{printable(message)}\n")
        return getattr(error, "exit_code", 1)


def carry_out(arguments: Sequence[str] | None, host: Host) -> int:
    """Run a command line, by default the process's; return its exit code.

    Raise MenagerieError, OSError for a file that the command line names, or SystemExit for help.
    """
    order, unknown = _parser(host).parse_known_args(arguments)
    if unknown:
        from difflib import get_close_matches

        known = re.findall("--[a-z-]+", order.parser.format_help())
        meant = "".join(f"Did you mean {n}? " for n in get_close_matches(unknown[0], known, 1))
        fact, prog = f"unrecognized arguments: {' '.join(unknown)}", order.parser.prog
        raise UsageError(prog, fact, f"{meant}See: {prog} --help")
    order.host = host
    if getattr(order, "allow_unsigned", False):
        from menagerie.trust.roots import ALLOW_UNSIGNED, WARNING

        os.environ[ALLOW_UNSIGNED] = "1"
        sys.stderr.write(f"{WARNING}\n")
    code: int = order.command(order)
    return code


class _ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"menagerie {version('menagerie')}\n")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser that reports misuse, and a help that cannot be written, in one line like errors."""

    def print_help(self, file: Any = None) -> None:
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        raise UsageError(self.prog, message, f"See: {self.prog} --help")


def _parser(host: Host) -> argparse.ArgumentParser:
    examples = [_EXAMPLES[name].splitlines()[0] for name in SUMMARIES]
    parser = _Parser(
        prog=host.program,
        description="Run PyTorch models that Menagerie converted, without PyTorch.",
        epilog=_epilog(host, examples, _NATIVE),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show it and exit")
    commands = parser.add_subparsers(required=True, metavar="|".join(SUMMARIES))
    _pulling(_command(commands, host, "pull", _pull), host)
    verify = _command(commands, host, "verify", _verify)
    _bundle(verify, host)
    _threads(verify, 1)
    run = _command(commands, host, "run", _run)
    _bundle(run, host)
    add = run.add_argument
    add("files", nargs="*", metavar="FILE", help="pictures, recordings or sentences for the model")
    add("--input", "-i", action="append", default=[], metavar="[NAME=]FILE.npy", help="an array")
    add("--output", "-o", type=Path, metavar="FILE", help=".npy, or .npz for several")
    add("--picture", type=Path, metavar="FILE.png", help="write the picture with the boxes drawn")
    add("--program", default="main", help="program of the model (default: main)")
    _threads(run)
    _timing(_command(commands, host, "bench", _bench), host)
    _transcription(_command(commands, host, "transcribe", _transcribe), host)
    trust = _command(commands, host, "trust", _trust)
    trust.add_argument(
        "root", nargs="?", metavar="root.json", help="a file, or https://: from its publisher"
    )
    _command(commands, host, "version", _version)
    return parser


def _command(
    commands: Any, host: Host, name: str, work: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=SUMMARIES[name],
        description=SUMMARIES[name],
        epilog=_epilog(host, _EXAMPLES[name].splitlines(), _NOTES.get(name, "")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--json", action="store_true", help="machine-readable result")
    made.set_defaults(command=work, parser=made)
    return made


def _epilog(host: Host, examples: Sequence[str], note: str) -> str:
    shown = "\n".join(examples).format(host.program)
    return "\n\n".join(part for part in (note, f"examples:\n{shown}", _EXIT_CODES) if part)


def _pulling(parser: argparse.ArgumentParser, host: Host) -> None:
    add = parser.add_argument
    add("model", help="name of a published model, or hf://ORG/NAME")
    _published(parser, host)
    add("--output", "-o", type=Path, metavar="PLACE", help="folder or zip (default: MODEL-TARGET)")
    add("--platform", help="another machine's, e.g. cpu-linux-arm64 (default: what this one runs)")
    add("--build", metavar="KEY", help="a build's key, or its beginning (default: the latest)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--zip", action="store_true", help="one zip file instead of a folder")
    form.add_argument(
        "--standalone", action="store_true", help="for any Linux with glibc 2.28, no Python"
    )
    add("--runtime", type=Path, metavar="WHEEL", help="for --standalone (default: the one here)")
    add("--no-goldens", action="store_true", help="leave out what only verify and bench read")


def _timing(parser: argparse.ArgumentParser, host: Host) -> None:
    add = parser.add_argument
    _bundle(parser, host)
    add("--program", default="main", help="program of the model (default: main)")
    _threads(parser, 1)
    add("--seconds", type=_seconds, default=3.0, help="how long to measure (default: 3)")
    add("--profile", action="store_true", help="where the time goes, by kernel")
    add("--most", type=_whole(0, 10_000), default=25, metavar="N", help="kernels (default: 25)")


def _transcription(parser: argparse.ArgumentParser, host: Host) -> None:
    add = parser.add_argument
    _bundle(parser, host)
    add("audio", nargs="+", help="WAV, FLAC, Ogg or MP3; `-`: raw 16-bit samples on standard input")
    add("--format", "-f", default="txt", help="txt, srt, vtt or json")
    add("--output", "-o", type=Path, metavar="DIR", help="folder for the files")
    add("--head", help="decoder of the model (default: its first)")
    add("--rate", type=_whole(1, 10**6), default=16_000, metavar="HZ", help="sample rate (16000)")
    add("--chunk", type=_seconds, metavar="SECONDS", help="of audio at once (default: the most)")
    add("--language", metavar="CODE", help="language, e.g. en (default: as heard)")
    _threads(parser)


def _threads(parser: argparse.ArgumentParser, default: int | None = None) -> None:
    shown = f"threads of a run (default: {default or 'all processors, one for little work'})"
    parser.add_argument("--threads", type=_whole(1, 256), default=default, help=shown)


def _bundle(parser: argparse.ArgumentParser, host: Host) -> None:
    parser.add_argument(
        "bundle", metavar="DIR|ZIP|MODEL", help="a bundle, or a published model or hf://ORG/NAME"
    )
    _published(parser, host)


def _published(parser: argparse.ArgumentParser, host: Host) -> None:
    add = parser.add_argument
    add("--target", "-t", default="cpu", type=host.target, help="cpu (default) or metal")
    add(
        "--store",
        metavar="URL",
        help="where models are published: a folder, https://host/path, s3://bucket/prefix or "
        f"hf://ORG/NAME (default: {host.default_store})",
    )
    add(
        "--allow-unsigned",
        action="store_true",
        help="take what no trusted key has signed: native code of unproven origin",
    )


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low} to {high}")
        return int(text)

    return read


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (seconds := float(text)) < _WEEK:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")


@contextmanager
def bundle_at(named: str, target: str, releases: Callable[[], ReleaseReader]) -> Iterator[Path]:
    """Yield the folder of a bundle: a folder, or a temporary one of a zip or a published model.

    Raise UsageError if the name cannot be a path, a model's name or hf://ORG/NAME, ArtifactError if
    the zip breaks the format, NotInStore if it is neither a path nor a published model.
    """
    path = Path(named)
    if path.is_dir():
        yield path
        return
    from menagerie.store import HUB

    if not path.is_file() and not named.startswith(HUB):
        model_name(named)
    # The system's temporary folder may be small, or forbid native code.
    unpacked = home() / "unpacked"
    unpacked.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=unpacked) as scratch:
        place = Path(scratch) / "bundle"
        if path.is_file():
            from menagerie.format.archive import unpack

            unpack(path, place)
        else:
            try:
                _, fetch = _found(named, target, releases)
            except (NotInStore, UsageError) as error:
                if named.startswith(HUB):
                    raise
                fact = f"is no folder or file here, and as a model: {error.place}: {error.fact}"
                raise type(error)(named, fact, error.next_step) from None
            fetch(place)
        try:
            yield place
        except MenagerieError as error:  # name what the user gave, not a removed folder
            if error.place.startswith(str(place)):
                error.place = named + error.place.removeprefix(str(place))
            raise


def _found(
    named: str,
    target: str,
    releases: Callable[[], ReleaseReader],
    *,
    goldens: bool = True,
    **which: str | None,
) -> tuple[Release, Callable[[Path], Path]]:
    """Return a release of the store or the Hub, and the function that pulls it."""
    from menagerie.store import HUB, open_releases
    from menagerie.store.pull import BlobCache

    model, store = ("", open_releases(named)) if named.startswith(HUB) else (named, releases())
    release = store.find(model, target, **which)

    def fetch(folder: Path) -> Path:
        began = time.monotonic()

        def show(done: int, total: int) -> None:
            rate = done / max(time.monotonic() - began, 1e-3) / 1e6
            share = 100 * done // total if total else 100
            of = f"{share:3d} % of {total / 1e6:.1f} MB, {rate:.1f} MB/s"
            status.show(f"{release.model} for {target} {of}")

        with Status() as status:
            cache = BlobCache.of_this_user()
            return store.pull(release, folder, show, cache=cache, goldens=goldens)

    return release, fetch


def model_name(text: str) -> str:
    """Return `text` if it can be a model's name; else raise UsageError: it is no existing path."""
    from menagerie.format.bundle_manifest import NAME

    if not re.fullmatch(NAME, text):
        raise UsageError(text, "is neither a folder, a file nor a model's name", "Check the path")
    return text


def _named(order: argparse.Namespace) -> AbstractContextManager[Path]:
    return bundle_at(order.bundle, order.target, lambda: _releases(order))


def _releases(order: argparse.Namespace) -> ReleaseReader:
    from menagerie.store import open_releases

    return open_releases(order.host.store(order.store))


def _pull(order: argparse.Namespace) -> int:
    which = {"build_key": order.build, "platform": order.platform}
    if order.zip and order.no_goldens:
        raise UsageError("--no-goldens", "a zip file is a whole bundle", "Leave out --zip")
    release, fetch = _found(
        order.model, order.target, lambda: _releases(order), goldens=not order.no_goldens, **which
    )
    place = order.output or Path(f"{release.model}-{order.target}{'.zip' if order.zip else ''}")
    if order.zip:
        _pull_zip(place, fetch)
    elif order.standalone:
        from menagerie.standalone import make_standalone

        make_standalone(place, fetch, order.runtime)
    else:
        fetch(place)
    return _say(order, *release.pulled_to(place))


def _pull_zip(place: Path, fetch: Callable[[Path], Path]) -> None:
    from menagerie.format.archive import pack

    if place.exists() or place.is_symlink():
        raise UsageError(str(place), "already exists", "Remove it or choose another place")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=place.parent) as folder:
        pack(fetch(Path(folder) / "bundle"), place)


def _verify(order: argparse.Namespace) -> int:
    from menagerie.typed_json import plain
    from menagerie.validation import Limits, validate

    with _named(order) as folder, Status() as status:
        status.show(f"running the golden cases of {order.bundle}")
        report = validate(folder, limits=Limits(threads=order.threads))
    text = "" if order.json else _verified(report)
    return _say(order, text, plain(report), good=report.passed)


def _verified(report: ValidationReport) -> str:
    """Return a row per output of each golden case, then measurements, then the verdict."""
    from menagerie.figures import count, decibels, error, milliseconds, size

    passed = {"bits": "bit-equal", "absolute": "by max abs", "snr": "by SNR"}
    rows = [
        (
            program.program,
            str(each.case),
            each.output,
            error(each.max_abs),
            decibels(each.snr_db),
            f"no: {each.fact}" if each.passed_by is None else passed[each.passed_by],
        )
        for program in report.programs
        for each in program.parity
    ]
    head = ("program", "case", "output", "max abs", "SNR", "passed")
    lines = [columns(head, rows, ("case", "max abs", "SNR")), ""] if rows else []
    lines += [
        f"{program.program}: {milliseconds(program.latency.median_ms)} median on "
        f"{count(program.latency.threads, 'thread')}{program.latency.busy and ', '}"
        f"{program.latency.busy}"
        for program in report.programs
        if program.latency is not None
    ]
    tried = [(p.program, p.refuting) for p in report.programs if p.refuting is not None]
    lines += [*(f"{name}: {found.summary}" for name, found in tried), *report.doubts]
    memory = "–" if report.peak_memory_bytes is None else size(report.peak_memory_bytes)  # noqa: RUF001
    if report.load_ms is not None:
        lines.append(f"load {milliseconds(report.load_ms)}, peak memory {memory}")
    where = " on an emulated device" if report.emulated else ""
    lines.append(f"verified{where}" if report.passed else f"{report.verdict}: {report.detail}")
    return "\n".join(lines)


def _use(order: argparse.Namespace) -> int:
    """Print the model's answer for each file, with the file's name if there are several."""
    from menagerie.steps import answers, draw

    if order.input or order.output is not None:
        raise UsageError("run", "takes files, or arrays by --input", "Leave one of them out")
    if order.picture is not None and len(order.files) != 1:
        raise UsageError("run", "--picture is of one file", "Give one")
    with _named(order) as folder:
        found = answers(folder, order.files, order.threads)
    if order.picture is not None:
        draw(order.files[0], found[0], order.picture)
    several = sum(bool(answer.lines) for answer in found) > 1
    lines = [
        f"{file}: {line}" if several else line
        for file, answer in zip(order.files, found, strict=True)
        for line in answer.lines
    ]
    rows = [{"file": f, **answer.fields} for f, answer in zip(order.files, found, strict=True)]
    return _say(order, "\n".join(lines), {"files": rows})


def _run(order: argparse.Namespace) -> int:
    if order.files or order.picture is not None:
        return _use(order)
    from menagerie.format.bundle_manifest import Role
    from menagerie.session import Session, checked_manifest
    from menagerie.tensor_files import read_inputs, readable, write_outputs

    with _named(order) as folder:
        if not order.input and Role.SPEECH in checked_manifest(folder, unsigned_too=True).files:
            raise UsageError(order.bundle, "no file was named", "Name one, or an array by --input")
        with Session(folder, order.program, order.threads) as session:
            given = session.run(read_inputs(order.input, session.inputs))
            dtypes = {spec.name: spec.dtype for spec in session.outputs}
        answers = {name: readable(given[name], dtype) for name, dtype in dtypes.items()}
    if order.output is not None:
        write_outputs(answers, order.output)
    if order.json:
        shown = {n: {"shape": [*v.shape], "values": v.tolist()} for n, v in answers.items()}
        return _say(order, "", {n: {"dtype": dtypes[n], **each} for n, each in shown.items()})
    rows = []
    for name, value in answers.items():
        ends = (f"{value.min():.6g}", f"{value.max():.6g}") if value.size else ("", "")
        rows.append((name, dtypes[name].value, str([*value.shape]), *ends))
    head = ("output", "dtype", "shape", "smallest", "largest")
    return _say(order, columns(head, rows, ("smallest", "largest")), {})


def _bench(order: argparse.Namespace) -> int:
    from menagerie.figures import milliseconds
    from menagerie.profile import table, with_shares
    from menagerie.timing import EMULATED, is_emulated, measure, measure_kernels
    from menagerie.typed_json import plain
    from menagerie.validation.findings import Profile

    time_it = measure_kernels if order.profile else measure
    with _named(order) as folder, Status() as status:
        status.show(f"timing {order.bundle}")
        found = time_it(folder, order.program, threads=order.threads, seconds=order.seconds)
        emulated = not order.profile and is_emulated(folder)
    if isinstance(found, Profile):
        return _say(order, table(order.program, found, order.most), with_shares(found))
    row = {"minimum": milliseconds(found.minimum_ms), "median": milliseconds(found.median_ms)}
    row["90 % below"] = milliseconds(found.p90_ms)
    if found.processor_ms is not None:
        row["processor"] = milliseconds(found.processor_ms)
    row |= {"runs": str(found.runs), "threads": str(found.threads)}
    text = columns(("program", *row), [(order.program, *row.values())], (*row,))
    text += f"\n{EMULATED}" if emulated else ""
    return _say(order, text, {**plain(found), "emulated": emulated})


def _transcribe(order: argparse.Namespace) -> int:
    from menagerie.speech import Transcriber
    from menagerie.speech.command import Order, transcribe

    form = "json" if order.json else order.format
    wanted = Order(order.audio, form, order.output, order.rate)
    given = {name: getattr(order, name) for name in ("head", "threads", "chunk", "language")}
    with _named(order) as folder, Transcriber(folder, **given) as transcriber:
        return transcribe(transcriber, wanted)


def _trust(order: argparse.Namespace) -> int:
    from menagerie.trust import add_root, trusted_roots
    from menagerie.trust.roots import MAX_ROOT_BYTES

    if order.root is None:
        roots = trusted_roots()
        lines = [f"{r.place}: root {r.version}, keys {', '.join(r.keys)}" for r in roots]
        shown = "\n".join(lines or ["no root is trusted here"])
        return _say(order, shown, {"roots": [root.place for root in roots]})
    root = add_root(_content(order.root, MAX_ROOT_BYTES), order.root)
    keys = sorted(root.keys)
    facts = {"version": root.version, "threshold": root.threshold, "keys": keys}
    must = f"{root.threshold} of {len(keys)} keys must sign: {', '.join(keys)}"
    return _say(order, f"trusted from now on: root {root.version}, {must}", facts)


def _content(place: str, most: int) -> bytes:
    if "://" in place:
        from menagerie.store.http import read_address

        return read_address(place, most)
    if not Path(place).is_file():
        fact = "is a folder" if Path(place).is_dir() else "there is no such file"
        raise UsageError(place, fact, "Give a publisher's root.json or a URL")
    with Path(place).open("rb") as file:
        return file.read(most + 1)


def _version(order: argparse.Namespace) -> int:
    from menagerie.library import available_targets, version

    found = {}
    for target in available_targets():
        try:
            found[target] = version(target)
        except MenagerieError as error:
            found[target] = f"menagerie-{target}: not usable here: {error}"
    return _say(order, "\n".join(found.values()), found)


def _say(
    order: argparse.Namespace, text: str, fields: dict[str, Any], *, good: bool | None = None
) -> int:
    """Write the result as JSON or text, its last line coloured by `good`; return the exit code."""
    if order.json:
        write_json(fields)
    else:
        *lines, last = printable(text).split("\n")
        sys.stdout.write("\n".join([*lines, painted(last, good)]) + "\n")
    return 1 if good is False else 0


if __name__ == "__main__":
    sys.exit(main())
