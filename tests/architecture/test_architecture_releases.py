"""A release has one writer and one reader, `journal/release.py`: no other module makes sense of a release's bytes.

A module that decodes JSON all the same is listed with what it reads; nothing in the list may read releases.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

Syntax = Mapping[Path, ast.Module]

THE_READER = Path("stream_dp/journal/release.py")
OTHER_JSON = {
    "files/highwater.py": "its own mark: how far a journal has been",
    "files/records.py": "the records of a data file: for their own time, or without a schema",
    "records/cells.py": "texts of a record that is sent, for its key and its headers",
    "operate/query/remote_series.py": "definitions of series and watches, where they are JSON",
    "operate/fitting.py": "payloads of events in a sample, for what is wrong with them",
    "broker/process.py": "its own files: the cluster's id and size, and the ports of the last run",
    "pipeline/fingerprints.py": "what a pipeline file says, as its journal keeps it",
    "engine/messages/addressed.py": "what is asked of a series",
    "engine/messages/issued_tokens.py": "the list of tokens that were made, its own file",
    "operate/run/live_series.py": "what is asked to be priced",
    "operate/run/rows_check.py": "records of a log of rows, a line each; what they hold is sealed",
    "journal/keys.py": "wrapped data keys, a file of their own form",
    "server/access.py": "names and prices in what is asked, for the log of accesses",
    "journal/answer_body.py": "answers to messages, in their own form",
    "journal/public_body.py": "the version of a body; who reads more by it is a reader, and found as one",
    "client/http_api.py": "answers about live series, and whether an answer is a refusal; none holds a release",
    "client/frames.py": "the names of a tie, in a row of its own making",
    "client/api.py": "answers of the HTTP API, in which releases stay bytes for the reader",
    "live/envelope.py": "envelopes of messages, as anyone may send them",
    "live/analyst_messages.py": "the text of messages",
    "records/avro.py": "schemas of events",
    "records/decoder.py": "the payloads of events",
    "pipeline/yaml.py": "definitions of series, where they are JSON",
}
DECODERS = {
    "json.load", "json.loads", "json.JSONDecoder", "orjson.loads",
    "msgspec.json.decode", "msgspec.json.Decoder",
    "stream_dp.journal.public_body.decoded_body",
}  # fmt: skip
METHODS = {"model_validate_json", "validate_json", "parse_raw"}


def decoders(tree: ast.Module) -> Iterator[str]:
    """Find every use of something that decodes JSON, under whatever name it was imported."""
    names = dict(imported(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        first, _, rest = ast.unparse(node).partition(".")
        full = f"{names.get(first, first)}.{rest}" if rest else names.get(first, first)
        if full in DECODERS or (isinstance(node, ast.Attribute) and node.attr in METHODS):
            yield f"line {node.lineno}: {full}"


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each imported name with what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def test_releases_have_one_reader(syntax: Syntax) -> None:
    readers = {path for path, tree in syntax.items() if any(decoders(tree))}
    assert readers == {THE_READER, *(Path("stream_dp", name) for name in OTHER_JSON)}


@pytest.mark.parametrize(
    "twin",
    [
        "import json\ndef tick(release): return json.loads(release.body)['tick']",
        "from json import loads as parsed\nparsed(body)",
        "import msgspec\nHEAD = msgspec.json.Decoder(Head)",
        "from msgspec import json\njson.decode(body)",
        "from msgspec.json import decode\ndecode(body)",
        "import msgspec.json as fast\nfast.Decoder(Head)",
        "Answer.model_validate_json(body)",
        "from stream_dp.journal import public_body\npublic_body.decoded_body(body, Mine, 1, 'release', '')",
    ],
)
def test_a_second_reader_is_found(twin: str) -> None:
    assert any(decoders(ast.parse(twin)))


@pytest.mark.parametrize(
    "good",
    [
        "import msgspec\nmsgspec.json.encode(1)\nmsgspec.msgpack.decode(sealed)",
        "from stream_dp.journal.release import read\nread(body)",
    ],
)
def test_what_reads_no_json_is_left_alone(good: str) -> None:
    assert list(decoders(ast.parse(good))) == []
