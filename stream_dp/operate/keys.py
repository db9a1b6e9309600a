"""The operator's key, a pipeline's data key, and the tokens made from it: the operator's own, and analysts'.

Rules: a flag overrides the environment, and a token overrides a key. Neither is ever an argument or the value of a
variable. A wrapped data key lies beside a journal file, else in the user's state folder, or where
`STREAM_DP_WRAPPED_KEY_FILE` says; without one the operator's key is the data key. A rotation replaces that file by a
rename, so at any moment one operator's key opens it, the former or the new one, and no commit is written again.
"""

import base64
import fcntl
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from stream_dp.broker.jars import state_dir
from stream_dp.engine.messages.issued_tokens import IssuedToken, IssuedTokens
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.files.threads import replace_file, sync_folder
from stream_dp.journal.keys import (
    KEY_BYTES,
    LONGEST,
    Sealer,
    WorkerKeys,
    WrappedKey,
    make_key,
    read_key,
    read_token,
    read_wrapped,
    worker_keys,
    wrap,
    write_private,
)
from stream_dp.noise import fresh_seed
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load, load_as
from stream_dp.records.endpoints import SqliteJournalSpec
from stream_dp.server.access import OPEN, Access

KEY_VARIABLE = "STREAM_DP_KEY_FILE"
COMMAND_VARIABLE = "STREAM_DP_KEY_COMMAND"
WRAPPED_VARIABLE = "STREAM_DP_WRAPPED_KEY_FILE"


def key_at(path: Path) -> bool:
    """Make a key at `path` unless one is there already; return whether a key was made."""
    if path.exists():
        read_key(path)
        return False
    make_key(path)
    return True


def sealer_for(spec: PipelineSpec, key_file: Path | None) -> Sealer:
    """Return the sealer with the pipeline's data key, which the operator's key opens: that in `key_file`, else in the
    file that STREAM_DP_KEY_FILE names, or that of the program STREAM_DP_KEY_COMMAND where the data key says so.

    For public data a key is made if none is given. Raises UsageError if there is no key, or others can read it.
    """
    path, record = wrapped_key(spec)
    if record is not None:
        data = record.data_key(_operator_of(record, path, spec, key_file))
        return Sealer(data, spec.name, record.operator_id)
    if os.environ.get(WRAPPED_VARIABLE):
        raise UsageError(
            f"there is no wrapped key at {path}, which {WRAPPED_VARIABLE} names; bring it back"
        )
    return Sealer(_operator(spec, key_file), spec.name)


def wrapped_key(spec: PipelineSpec) -> tuple[Path, WrappedKey | None]:
    """Return where a pipeline's wrapped data key lies, and it, if there is one."""
    path = _beside_journal(spec, WRAPPED_VARIABLE, "wrapped-key", "keys")
    try:
        return path, read_wrapped(path.read_bytes(), spec.name)
    except FileNotFoundError:
        if path.is_symlink():
            says = "is a link, and what it names is not there; bring it back"
            raise FailClosed(f"the wrapped key {path} {says}") from None
        return path, None
    except OSError as error:
        raise WorldError(f"the wrapped key {path} cannot be read: {error.strerror}") from None


def _beside_journal(spec: PipelineSpec, variable: str, ending: str, folder: str) -> Path:
    """Return the place of a file that belongs to a pipeline's journal; the environment may name another one."""
    if named := os.environ.get(variable):
        return Path(named)
    if isinstance(spec.journal, SqliteJournalSpec):
        return spec.journal.path.with_name(f"{spec.journal.path.name}.{ending}")
    return state_dir() / folder / f"{spec.name}.{ending}"


def _operator(spec: PipelineSpec, key_file: Path | None, *, made: bool = True) -> bytes:
    """Return the operator's key from its file; `made`: for public data it may be made."""
    named = _key_file(key_file)
    if named is not None:
        return read_key(named)
    if not spec.public_data:
        raise UsageError(
            f"{spec.name} needs an operator key: create one with `stream-dp key`, and name it "
            f"with --key-file or {KEY_VARIABLE}"
        )
    own = state_dir() / "keys" / f"{spec.name}.key"
    return make_key(own) if made and not own.exists() else read_key(own)


def _operator_of(
    record: WrappedKey, path: Path, spec: PipelineSpec, key_file: Path | None, command: str = ""
) -> bytes:
    """Return the operator's key under which a data key was wrapped, from a file or from the operator's program."""
    if not record.operator_wrapped:
        return _operator(spec, key_file, made=False)
    command = command or os.environ.get(COMMAND_VARIABLE, "")
    if key_file is not None or not command:
        raise UsageError(
            f"a program holds the operator's key of {path}: name that program in "
            f"{COMMAND_VARIABLE}, and no key file"
        )
    answer = _asked(command, "unwrap", record.operator_wrapped)
    with suppress(ValueError):
        if len(key := base64.b64decode(answer, validate=True)) == KEY_BYTES:
            return key
    raise FailClosed(f"{_named(command)} unwrap: its answer is not {KEY_BYTES} bytes in base64")


PROGRAM_S = 30.0
"""Seconds in which the operator's program must answer and end."""


def _asked(command: str, verb: str, given: str) -> str:
    """Run the operator's program with `verb` as its last argument and `given` on its standard input, and return its
    answer, one line. Its standard error is ours; nothing that it reads or answers appears in an error.
    """
    about = f"{_named(command)} {verb}"
    try:
        process = subprocess.Popen(  # noqa: S603 - the operator's own program
            [*_words(command), verb],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise WorldError(f"{about}: cannot be started: {error.strerror}") from None
    with process:
        try:
            end = time.monotonic() + PROGRAM_S
            answer = _answer(process, f"{given}\n".encode(), end)
            if whole := len(answer) <= LONGEST:
                process.wait(max(0.0, end - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired):
            raise WorldError(f"{about}: no answer within {PROGRAM_S:g} seconds") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # its children too
    if whole and process.returncode:
        raise WorldError(f"{about}: ended with status {process.returncode}")
    text = answer.decode("latin-1").strip()
    if not whole or not text or not (text.isascii() and text.isprintable()):
        raise FailClosed(f"{about}: its answer is not one line of at most {LONGEST:,} characters")
    return text


def _answer(process: "subprocess.Popen[bytes]", given: bytes, end: float) -> bytes:
    """Return what the program writes, up to a little more than it may; raises TimeoutError at `end`."""
    answer = b""
    if process.stdin is None or process.stdout is None:
        raise EOFError
    with suppress(BrokenPipeError):  # it need not read
        process.stdin.write(given)
        process.stdin.close()
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while len(answer) <= LONGEST:
            if not ready.select(max(0.0, end - time.monotonic())):
                raise TimeoutError
            if not (more := os.read(process.stdout.fileno(), LONGEST)):
                break
            answer += more
    return answer


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words:
        raise UsageError(
            f"{COMMAND_VARIABLE}: must be a program with its arguments, written as for a shell"
        )
    return words


def _named(command: str) -> str:
    """Return how errors name the program: without its arguments, of which one may be a secret."""
    return f"the key command {_words(command)[0]}"


class Rotated(NamedTuple):
    """What a rotation did: the place of the wrapped key; whether there is a journal, as far as was looked; whether the
    former operator's key is the data key, so that whoever has it can read the journal still.
    """

    path: Path
    begun: bool
    former_is_data: bool


async def rotate_key(
    pipeline: Path,
    key_file: Path | None,
    new_file: Path | None,
    new_command: str,
    begun: Callable[[PipelineSpec, Callable[[], Sealer]], Awaitable[bool]],
) -> Rotated:
    """Wrap a pipeline's data key under a new operator's key: that in `new_file`, or a fresh one that the program
    `new_command` wraps. Durable on return; an engine that runs is not disturbed. What is refused changes nothing.

    Without a wrapped key, `begun` says whether there is a journal, after opening it. If so, the operator's key, which
    sealed it, becomes the data key; else a random one.
    """
    if (new_file is None) == (not new_command):
        raise UsageError("name either --new-key-file FILE or --new-key-command COMMAND")
    spec = load(pipeline)
    path = wrapped_key(spec)[0].resolve()

    def former() -> bytes:
        return _operator(spec, key_file, made=False)

    with _alone(path):
        record, going, operator = wrapped_key(spec)[1], True, b""
        if record is not None:
            operator = _operator_of(record, path, spec, key_file)
            data = record.data_key(operator)
        elif going := await begun(spec, lambda: Sealer(former(), spec.name)):
            operator = data = former()
        else:
            data = fresh_seed()
        if new_file is not None:
            new, program = read_key(new_file), ""
        else:
            new = fresh_seed()
            plain = base64.b64encode(new).decode()
            program = _asked(new_command, "wrap", plain)
            if plain in program:
                raise FailClosed(
                    f"{_named(new_command)} wrap: its answer contains the key unencrypted"
                )
        if new in (operator, data):
            which = "the operator's key already" if new == operator else "the data key itself"
            raise UsageError(f"--new-key-file: {new_file} is {which}; make another one")
        content = wrap(data, new, spec.name, program)
        again = read_wrapped(content, spec.name)
        again.data_key(_operator_of(again, path, spec, new_file, new_command))
        try:
            if new_file is not None:
                with new_file.open("rb") as file:
                    os.fsync(file.fileno())
                sync_folder(new_file.parent)
            replace_file(path, content, mode=0o600)
        except OSError as error:
            raise WorldError(f"{path}: cannot be written: {error.strerror}") from None
    return Rotated(path, going, record is None and going)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Exclude other rotations in the folder of `path`, which is made, durably."""
    try:
        missing = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        for made in missing:
            sync_folder(made.parent)
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise WorldError(f"{path.parent}: cannot be used: {error.strerror}") from None
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{path}: another rotation is running; wait for its end, and look at its result"
            ) from None
        yield
    finally:
        os.close(folder)


def _key_file(key_file: Path | None) -> Path | None:
    return key_file or (Path(os.environ[KEY_VARIABLE]) if os.environ.get(KEY_VARIABLE) else None)


def worker_keys_for(spec: PipelineSpec, key_file: Path | None) -> WorkerKeys:
    """Return the keys of a worker: those in the file, or derived from the data key, found as by `sealer_for`."""
    named = _key_file(key_file)
    exported = None if named is None else worker_keys(named)
    return exported or sealer_for(spec, key_file).worker_keys()


def export_worker_keys(pipeline: Path, key_file: Path | None, to: Path) -> str:
    """Write the keys of a worker into a new file of mode 0600; return the pipeline's name."""
    spec = load(pipeline)
    write_private(to, sealer_for(spec, key_file).worker_keys().line)
    return spec.name


LIST_VARIABLE = "STREAM_DP_TOKEN_LIST"
TOKEN_VARIABLE = "STREAM_DP_TOKEN_FILE"  # noqa: S105 - the name of a file


def token_for(spec: PipelineSpec | None, key_file: Path | None, token_file: Path | None) -> str:
    """Return the token in a file, or else the operator's token for the pipeline of `spec`."""
    if key_file is not None and token_file is not None:
        raise UsageError("--key-file and --token-file: name one of them")
    variable = None if key_file is not None else os.environ.get(TOKEN_VARIABLE)
    named = token_file or (Path(variable) if variable else None)
    if named is not None:
        return read_token(named)
    if spec is None:
        raise UsageError(
            f"without the pipeline file an analyst's token is needed: --token-file or {TOKEN_VARIABLE}"
        )
    try:
        return sealer_for(spec, key_file).query_token()
    except UsageError as error:
        raise UsageError(
            f"{error}. A running engine accepts only the key with which it was started"
        ) from None


def token_of(spec: PipelineSpec, key_file: Path | None, analyst: str) -> str:
    """Return an analyst's token ("": the operator's) made from the key."""
    known = [person.name for person in spec.privacy.analysts]
    if analyst and analyst not in known:
        raise UsageError(
            f"--analyst: {spec.name} has no analyst of this name; `privacy.analysts` of its file "
            f"names {', '.join(known) or 'none'}"
        )
    return sealer_for(spec, key_file).query_token(analyst)


def issued_for(spec: PipelineSpec, sealer: Sealer | None) -> IssuedTokens:
    """Return the list of tokens that the operator has made for the analysts and readers of this pipeline.

    It lies beside a journal file, else in the user's state folder. `STREAM_DP_TOKEN_LIST` names another place, which
    engine, standby and operator must share.
    """
    path = _beside_journal(spec, LIST_VARIABLE, "tokens", "tokens")
    return IssuedTokens(path, sealer, [analyst.name for analyst in spec.privacy.analysts])


def access_of(file: Path | None, names: Iterable[str]) -> Access:
    """Return who may read by a file of access (None: everyone), and further host names."""
    access = OPEN if file is None else load_as(file, Access)
    return access.model_copy(update={"names": access.names.union(names)})


def require_analysts(access: Access, *specs: PipelineSpec) -> None:
    """Raise UsageError if a user of the proxy is to be an analyst whom none of the pipelines names."""
    known = [analyst.name for spec in specs for analyst in spec.privacy.analysts]
    names = ", ".join(spec.name for spec in specs)
    named = {} if access.proxy is None else access.proxy.analysts
    if unknown := sorted({*named.values()} - {*known}):
        raise UsageError(
            f"--access: proxy.analysts names {', '.join(unknown)}, but `privacy.analysts` of {names} names "
            f"{', '.join(dict.fromkeys(known)) or 'none'}"
        )


class HandedToken(NamedTuple):
    """A token and its `state`; `secret` is its text, only when just made; `named_in` is the list's file."""

    id: str
    analyst: str
    made: str
    expires: str
    state: str
    named_in: Path
    secret: str = ""
    reader: str = ""


def hand_out(pipeline: Path, key_file: Path | None, analyst: str, days: int) -> HandedToken:
    """Make a token for an analyst; on return its entry in the list is durable."""
    tokens, now = _tokens(pipeline, key_file)
    made, secret = tokens.make(analyst, days, now)
    return _handed(tokens, made, now, secret)


def hand_out_reading(pipeline: Path, key_file: Path | None, reader: str, days: int) -> HandedToken:
    """Make a token with which a reader reads and never asks; on return its entry in the list is durable."""
    tokens, now = _tokens(pipeline, key_file)
    made, secret = tokens.make_reading(reader, days, now)
    return _handed(tokens, made, now, secret)


def take_back(pipeline: Path, key_file: Path | None, id_: str) -> HandedToken:
    """Revoke a token; durable on return."""
    tokens, now = _tokens(pipeline, key_file)
    return _handed(tokens, tokens.revoke(id_, now), now)


def handed_out(pipeline: Path, key_file: Path | None) -> list[HandedToken]:
    """Return all issued tokens in order of issue, without their secrets."""
    tokens, now = _tokens(pipeline, key_file)
    return [_handed(tokens, token, now) for token in tokens.all().values()]


def _handed(tokens: IssuedTokens, token: IssuedToken, now: int, secret: str = "") -> HandedToken:
    return HandedToken(
        token.id, token.analyst, token.made, token.expires, token.state(now), tokens.path, secret,
        token.reader,
    )  # fmt: skip


def _tokens(pipeline: Path, key_file: Path | None) -> tuple[IssuedTokens, int]:
    """Return the list of tokens, and the time now (ms)."""
    spec = load(pipeline)
    return issued_for(spec, sealer_for(spec, key_file)), time.time_ns() // 1_000_000
