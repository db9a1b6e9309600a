"""Asks an engine that runs elsewhere over HTTP, with the pipeline file and the operator's key at hand.

Rules: the engine decides and charges. A series is checked against the file before it is sent: the engine's refusals
repeat no value of the definition, but the errors raised here may.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stream_dp.client.http_api import LiveSeriesClient, TokenRefused, nobody_listens
from stream_dp.core.wording import shown_number
from stream_dp.errors import UsageError, WorldError
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load, load_live, load_series
from stream_dp.server.view import LARGEST_DEFINITION
from stream_dp.statistics.parts.choice import FalseAlarm

WAIT_S = 60.0
"""How long to wait for a listener."""
_AGAIN_S = 0.3


def page_there(url: str, tell: Callable[[str], None]) -> None:
    """Return when a server listens at the address, or after `WAIT_S` seconds; `tell` once that it waits.

    Lines for two terminals can therefore be pasted at once. Only a port without a listener is waited for; a server that
    answers reports its own errors.
    """
    deadline, waiting = time.monotonic() + WAIT_S, False
    while nobody_listens(url) and time.monotonic() < deadline:
        if not waiting:
            tell(f"Waiting for the page of an engine at {url}, for {WAIT_S:.0f} s at most")
            waiting = True
        time.sleep(_AGAIN_S)


class RemoteEngine(ABC):
    """An engine that runs elsewhere, asked by messages; it decides and charges, and its errors are raised here."""

    def ask(self, series: str, parameters: Mapping[str, Any], name: str = "") -> bytes:
        """Return the exact public line that answers a query; `name` is the message id (default: a fresh one)."""
        return self._line("ask", {"series": series, **parameters}, name)

    def watch(
        self, series: str, watch: str, name: str = "", *, accept_noise: bool = False
    ) -> Mapping[str, Any]:
        """Add a watch to a monitor; `watch` is JSON or YAML, or @ and a file's name."""
        content = {"series": series, **accepting(accept_noise)}
        return told_in(self._line("watch", content, name, watch_json(watch)))[1]

    def unwatch(self, series: str, watch: str, name: str = "") -> Mapping[str, Any]:
        return told_in(self._line("unwatch", {"series": series, "watch": watch}, name))[1]

    def apply(self, pipeline: Path, name: str = "") -> Mapping[str, Any]:
        """Let the engine go on with a changed pipeline file, in one commit; return what that changed."""
        from stream_dp.pipeline.fingerprints import told  # other messages need no meaning of a file

        return told_in(self._line("apply", {}, name, told(load(pipeline)).decode()))[1]

    @abstractmethod
    def _line(self, do: str, content: Mapping[str, Any], name: str, definition: str = "") -> bytes:
        """Send a message and return the line that answers it; raise a refusal."""


class RemoteSeries(RemoteEngine):
    """The engine at `url` of a pipeline file; `analyst` pays. `tell` is called while the client waits."""

    def __init__(
        self,
        pipeline: Path,
        url: str = "",
        key_file: Path | None = None,
        token_file: Path | None = None,
        analyst: str = "",
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        if not pipeline.suffix and not pipeline.exists():
            raise UsageError(
                f"{pipeline}: there is no such file. Over HTTP the pipeline file is needed: name it (such as "
                f"{pipeline}.yaml, or with its folder). Over Kafka the name of a pipeline is enough: --via kafka, "
                "with --bootstrap and --token-file"
            )
        self._spec, self._url, self._tell = load(pipeline), url.rstrip("/"), tell
        self._key_file, self._token_file, self._analyst = key_file, token_file, analyst

    def apply(self, pipeline: Path, name: str = "") -> Mapping[str, Any]:
        """Apply at an engine that runs: none is waited for, because the pipeline's next start can apply too."""
        if nobody_listens(self._url):
            raise WorldError(
                f"no engine answers at {self._url}; nothing was applied. If the engine of {self._spec.name} runs "
                "elsewhere, name its address with --url, or ask it over Kafka (--via kafka). If no engine runs, "
                f"`stream-dp run {pipeline} --apply` applies the change when it starts"
            )
        return super().apply(pipeline, name)

    def create(self, series: str, *, accept_noise: bool = False) -> dict[str, Any]:
        """Create a series; `series` is JSON or YAML, or @ and a file's name.

        Raises MostlyNoise if the series would fire mostly by noise, and that was not accepted.
        """
        definition = definition_of(series, self._spec)
        return self._engine().create(definition, self._analyst, accept_noise=accept_noise)

    def preview(self, series: str) -> dict[str, Any]:
        """Return what creating the series would cost; changes nothing."""
        definition = definition_of(series, self._spec)
        return self._engine().preview(definition, self._analyst)

    def preview_halt(self, name: str) -> dict[str, Any]:
        return self._engine().preview_halt(name)

    def halt(self, name: str) -> dict[str, Any]:
        return self._engine().halt(name)

    def queries(self) -> list[dict[str, Any]]:
        """Return the running series and the last halted ones; needs no key where reading is open."""
        page_there(self._url, self._tell)
        try:
            return LiveSeriesClient(self._url, self._spec.name, token="").queries()
        except TokenRefused:
            return self._engine().queries()

    def token(self) -> str:
        """Return the analyst's token, or the operator's if no analyst is named, made from the key."""
        from stream_dp.operate.keys import token_of  # `queries` needs no key and no cipher

        return token_of(self._spec, self._key_file, self._analyst)

    def _line(self, do: str, content: Mapping[str, Any], name: str, definition: str = "") -> bytes:
        from stream_dp.client.message_text import fresh_id, good_answer, message_text

        engine = self._engine()
        analyst = self._analyst or engine.analyst()
        return good_answer(
            engine.message(message_text(do, content, name or fresh_id(), analyst, definition))
        )

    def _engine(self) -> LiveSeriesClient:
        from stream_dp.operate.keys import token_for

        token = token_for(self._spec, self._key_file, self._token_file)
        page_there(self._url, self._tell)
        return LiveSeriesClient(self._url, self._spec.name, token)


def accepting(accept_noise: bool) -> dict[str, bool]:
    """Return the entry of a message that accepts noise; empty if `accept_noise` is False."""
    return {"accept_noise": True} if accept_noise else {}


def verdict_lines(preview: Mapping[str, Any]) -> list[str]:
    """Return the verdicts of a preview as sentences.

    >>> verdict_lines({"verdicts": [{"verdict": "noise", "typical": 183.4, "band": 682.0, "window": "24h"}]})
    ['According to the guesses of the pipeline file: noise (± 682 for a number of about 183 over 24h).']
    """
    lines = []
    for row in preview.get("verdicts", ()):
        over = f" over {row['window']}" if row.get("window") else ""
        if row["verdict"] is None:
            lines.append(
                f"Whether the series is useful{over} is not known without {row['missing']}."
            )
            continue
        band = "no end" if row["band"] is None else f"± {shown_number(row['band'])}"
        about = shown_number(row["typical"])
        lines.append(
            f"According to the guesses of the pipeline file: {row['verdict']} ({band} for a number of about "
            f"{about}{over})."
        )
    return lines


def noise_lines(preview: Mapping[str, Any]) -> list[str]:
    """Return the probabilities of false alarms in a preview, and whether alarms are mostly noise, as sentences."""
    lines = [f"{FalseAlarm(**alarm).words}." for alarm in preview.get("false_alarms", ())]
    if noise := preview.get("noise"):
        lines.append(f"{noise[:1].upper()}{noise[1:]}. To create it all the same: --yes.")
    return lines


def told_in(line: bytes) -> tuple[str, Mapping[str, Any]]:
    """Return the cut's time and the content of an answer's public line; the answer must not be a refusal."""
    from stream_dp.journal.answer_body import read_answer  # needed only for messages

    answer = read_answer(line)
    return answer.end, answer.answer or {}


def definition_of(series: str, spec: PipelineSpec | None) -> bytes:
    """Return the bytes of a series given as JSON, YAML or @ and a file's name, checked against `spec`, if any."""
    content = _content("--series", series)
    if spec is not None:
        load_series(content, spec, series[1:] if series.startswith("@") else "--series")
    return content


def watch_json(watch: str) -> str:
    """Return the JSON of a watch given as JSON, YAML or @ and a file's name; raise UsageError if it is no mapping."""
    content = _content("--watch", watch)
    if is_json_object(content):
        return content.decode()
    plain: Any = load_live(content, lambda data: data, watch[1:] if watch[:1] == "@" else "--watch")
    return json.dumps(plain)


def is_json_object(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except ValueError:
        return False


def _content(option: str, text: str) -> bytes:
    """Return the bytes of a definition in an option, or in the file that the option names."""
    if text.startswith("@"):
        try:
            content = Path(text[1:]).read_bytes()
        except OSError as error:
            raise UsageError(f"{option}: {text[1:]} cannot be read: {error.strerror}") from None
    else:
        content = text.encode()
    if len(content) > LARGEST_DEFINITION:
        raise UsageError(f"{option}: must not be larger than {LARGEST_DEFINITION} bytes")
    if not text.startswith(("@", "{")) and ":" not in text:
        raise UsageError(
            f"{option}: must be JSON or YAML, or @ and the name of a file that holds it"
        )
    return content
