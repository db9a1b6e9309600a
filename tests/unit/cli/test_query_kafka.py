"""`stream-dp query --via kafka`: what is said to the engine, with whose token, and what becomes of the answer."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from unit.cli.conftest import Site

from stream_dp.client.message_text import good_answer
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.live.analyst_messages import (
    AnyMessage,
    AskMessage,
    CreateMessage,
    HaltMessage,
    read_message,
)
from stream_dp.live.envelope import is_signed, read_envelope, write_envelope
from stream_dp.operate.query import remote_messages

KEY = bytes(range(32))
SERIES = '{"name": "busy", "statistic": "count", "epsilon": 0.10}'
SAID = {"name": "busy", "start": 17, "epsilon": "0.1", "left": "0.4", "end": 18, "fits": True}
WHERE = ("--via", "kafka", "--bootstrap", "127.0.0.1:9")
FILE = "source: {kind: file, path: clicks.csv}"
TOPIC = 'source: {kind: kafka, topic: events, bootstrap: "127.0.0.1:7"}'
Ask_ = Callable[..., Any]


def line(**said: Any) -> bytes:
    head = {"v": 1, "number": 7, "id": "x", "do": "ask", "tick": 4, "end": "2024-05-01T05:00:00Z"}
    return json.dumps({**head, **(said or {"answer": SAID})}).encode()


class Engine:
    """Takes messages as an engine does, and answers all alike."""

    def __init__(self) -> None:
        self.answers = line()
        self.settings: KafkaSettings | None = None
        self.heard: list[AnyMessage] = []
        self.texts: list[str] = []
        self.tokens: list[str] = []
        self.ids: list[str] = []

    async def there(self, *_: object) -> None:
        """Brokers need not be waited for."""

    @asynccontextmanager
    async def talking(
        self, settings: KafkaSettings, pipeline: str, token: str
    ) -> AsyncIterator["Engine"]:
        assert pipeline == "clicks"
        self.settings = settings
        self.tokens.append(token)
        yield self

    async def answer(self, text: str, name: str) -> bytes:
        envelope = read_envelope(write_envelope(self.tokens[-1], "clicks", text))
        assert is_signed(self.tokens[-1], "clicks", envelope)
        self.texts.append(text)
        self.heard.append(read_message(text))
        assert self.heard[-1].id == name
        return good_answer(self.answers)


@pytest.fixture
def engine(site: Site, monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    site.write(FILE, TOPIC)
    monkeypatch.setattr(remote_messages, "talking", made.talking)
    monkeypatch.setattr(remote_messages, "brokers_there", made.there)
    monkeypatch.delenv("STREAM_DP_TOKEN_FILE", raising=False)
    return made


@pytest.fixture
def ann(tmp_path: Path) -> Path:
    path = tmp_path / "ann.token"
    path.write_text(Sealer(KEY, "clicks").query_token("ann") + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def ask(site: Site, engine: Engine) -> Ask_:
    return lambda name, *more: site.say("query", name, str(site.pipeline), *more, *WHERE)


def test_commands_are_messages_signed_by_the_operator(ask: Ask_, engine: Engine) -> None:
    said = ask("create", "--series", SERIES, "--analyst", "ann")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("busy: created, charged epsilon 0.1, left 0.4. Start: tick 17")
    assert ask("preview", "--series", SERIES).out.startswith("The series fits")
    assert ask("halt", "busy").out.startswith("busy: halted, left 0.4. End: tick 18")
    engine.answers = line(answer={"queries": [{"name": "busy", "statistic": "count", "start": 17}]})
    assert "busy" in ask("list").out
    assert SERIES in engine.texts[0], "word for word"
    assert [one.do for one in engine.heard] == ["create", "preview", "halt", "list"]
    assert [one.analyst for one in engine.heard] == ["ann", "", "", ""]
    assert set(engine.tokens) == {Sealer(KEY, "clicks").query_token()}
    assert len({one.id for one in engine.heard}) == 4
    assert engine.settings is not None
    assert engine.settings.bootstrap == "127.0.0.1:9"


def test_a_definition_in_yaml_says_the_same(ask: Ask_, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "busy.yaml").write_text("name: busy\nstatistic: count\nepsilon: 1/8\n")
    assert ask("create", "--series", f"@{tmp_path / 'busy.yaml'}").code == 0
    assert isinstance(engine.heard[0], CreateMessage)
    assert json.loads(engine.heard[0].series) == {
        "name": "busy", "statistic": "count", "epsilon": "1/8", "where": [],
    }  # fmt: skip


def test_an_analyst_needs_a_token_and_a_name_alone(
    site: Site, engine: Engine, ann: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAM_DP_KEY_FILE", raising=False)
    site.pipeline.unlink()
    more = ("--token-file", str(ann), "--analyst", "ann", *WHERE)
    said = site.say("query", "create", "clicks", "--series", SERIES, *more)
    assert (said.code, said.err) == (0, "")
    said = site.say("query", "halt", "clicks", "busy", *more)
    assert (said.code, said.err) == (0, "")
    assert isinstance(engine.heard[-1], HaltMessage)
    assert engine.tokens == [Sealer(KEY, "clicks").query_token("ann")] * 2
    assert {one.analyst for one in engine.heard} == {"ann"}


def test_the_environment_names_the_token_and_the_brokers(
    site: Site, engine: Engine, ann: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_DP_TOKEN_FILE", str(ann))
    monkeypatch.setenv("STREAM_DP_KAFKA_BOOTSTRAP", "127.0.0.1:8")
    said = site.say("query", "halt", "clicks", "busy", "--via", "kafka")
    assert (said.code, said.err) == (0, "")
    assert engine.tokens == [Sealer(KEY, "clicks").query_token("ann")]
    assert engine.settings is not None
    assert engine.settings.bootstrap == "127.0.0.1:8"
    key = site.folder / "operator.key"
    more = ("--key-file", str(key), "--via", "kafka")
    assert site.say("query", "halt", str(site.pipeline), "busy", *more).code == 0
    assert engine.tokens[-1] == Sealer(KEY, "clicks").query_token()  # a flag counts first


BAD_CALLS = {
    "no token": ("halt clicks busy", "--token-file or STREAM_DP_TOKEN_FILE"),
    "no name": ("halt a/b busy", "neither a pipeline file nor the name"),
    "no file": ("halt none.yaml busy", "none.yaml"),
    "yaml without the file": (
        "create clicks --series name:busy --token-file T",
        "must be a JSON object",
    ),
    "a token that is none": ("halt clicks busy --token-file K", "64 hexadecimal"),
    "whose token": (
        "ask clicks busy --token-file I",
        "--analyst: name the analyst who owns this token",
    ),
    "both": ("halt clicks busy --token-file T --key-file K", "name one of them"),
}


@pytest.mark.parametrize(("call", "named"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_bad_call_is_2_and_says_what_is_wrong(
    site: Site, engine: Engine, ann: Path, call: str, named: str
) -> None:
    issued = ann.with_name("issued.token")
    issued.write_text(Sealer(KEY, "clicks").issued_token("0" * 12, "ann", "2027-01-01T00:00:00Z"))
    issued.chmod(0o600)
    files = {"T": str(ann), "I": str(issued), "K": str(site.folder / "operator.key")}
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("STREAM_DP_KEY_FILE", raising=False)
        said = site.say("query", *(files.get(word, word) for word in call.split()), *WHERE)
    assert (said.code, named in said.err) == (2, True), said.err
    assert engine.heard == []


def test_without_topics_none_is_asked(site: Site, engine: Engine, ann: Path) -> None:
    site.write()
    said = site.say("query", "halt", str(site.pipeline), "busy", *WHERE)
    assert (said.code, "--via kafka: clicks has its journal in a file" in said.err) == (2, True)
    token = ("--token-file", str(ann))
    said = site.say("query", "halt", "clicks", "busy", "--via", "kafka", *token)
    assert (said.code, "where is Kafka" in said.err) == (2, True)
    said = site.say("query", "halt", "clicks", "m", *token)
    assert "clicks: there is no such file. Over HTTP the pipeline file is needed" in said.err


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ((), {}),
        (("--keys", "home,help"), {"keys": ["home", "help"]}),
        (("--from", "home", "--to", "help"), {"from": "home", "to": "help"}),
        (("--watch", "large", "--threshold", "-7"), {"watch": "large", "threshold": -7}),
    ],
)
def test_what_is_asked(
    ask: Ask_, engine: Engine, options: tuple[str, ...], parameters: dict[str, Any]
) -> None:
    assert ask("ask", "by_page", "--id", "q-1", *options).code == 0
    (heard,) = engine.heard
    assert isinstance(heard, AskMessage)
    assert (heard.id, heard.series, heard.parameters) == ("q-1", "by_page", parameters)


def test_an_answer_for_people_and_one_for_programs(ask: Ask_, engine: Engine) -> None:
    engine.answers = line(answer={"series": "by_page", "values": {"home": 3, "help": 4}, "band": 7})
    said = ask("ask", "by_page")
    assert said.out == "by_page at 2024-05-01T05:00:00Z: values home 3, help 4, band 7\n"
    assert ask("ask", "by_page", "--json").out.encode() == engine.answers + b"\n"
    engine.answers = line(refused={"kind": "budget", "exit_code": 3, "detail": "why not"})
    said = ask("ask", "by_page")
    assert (said.code, said.out, said.err) == (3, "", "stream-dp: why not\n")


def test_the_token_of_an_analyst(site: Site) -> None:
    site.write("epsilon: 1}", "epsilon: 1, analysts: [{name: ann, epsilon: 0.1}]}")
    said = site.say("query", "token", str(site.pipeline), "--analyst", "ann")
    assert said.out == Sealer(KEY, "clicks").query_token("ann") + "\n"
    said = site.say("query", "token", str(site.pipeline), "--analyst", "bob")
    assert said.code == 2
    assert "`privacy.analysts` of its file names ann" in said.err
