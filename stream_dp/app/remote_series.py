"""The live series of an engine that runs elsewhere, asked with the pipeline file and the operator's key at hand.

Rules: the engine decides and charges. A series is checked against the file before it is sent: an engine's refusal
repeats no value, ours may.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stream_dp.client.live_series import LiveSeriesClient
from stream_dp.errors import UsageError
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load, load_series
from stream_dp.serve.live_series import LARGEST_DEFINITION


@dataclass(frozen=True, slots=True)
class RemoteSeries:
    """The engine at `url` that runs the pipeline of `spec`.

    Raises, in every method:
        UsageError: no key, a series that the file does not allow, or what the engine says of the request.
        BudgetRefused, FailClosed: what the engine says.
        WorldError: no engine answers there.
    """

    spec: PipelineSpec
    url: str = ""
    key_file: Path | None = None

    @classmethod
    def of(cls, pipeline: Path, url: str = "", key_file: Path | None = None) -> "RemoteSeries":
        """Read the pipeline file.

        Raises:
            UsageError: it is not one.
        """
        return cls(load(pipeline), url.rstrip("/"), key_file)

    def create(self, series: str, analyst: str) -> dict[str, Any]:
        """Create a series; `series` is JSON or YAML, or @ and a file's name."""
        definition = self._definition(series)
        return self._engine().create(definition, analyst)

    def preview(self, series: str, analyst: str) -> dict[str, Any]:
        """Return what creating the series would cost; changes nothing."""
        definition = self._definition(series)
        return self._engine().preview(definition, analyst)

    def halt(self, name: str) -> dict[str, Any]:
        """Halt a series."""
        return self._engine().halt(name)

    def queries(self) -> list[dict[str, Any]]:
        """Return all series, halted ones too; needs no key."""
        return LiveSeriesClient(self.url, self.spec.name, token="").queries()

    def token(self) -> str:
        """The token that the engine takes, if this is its key."""
        from stream_dp.app.operator_key import sealer_for  # `queries` needs no key and no cipher

        try:
            return sealer_for(self.spec, self.key_file).query_token()
        except UsageError as error:
            raise UsageError(
                f"{error}. An engine that runs takes no key but the one it was started with"
            ) from None

    def _engine(self) -> LiveSeriesClient:
        return LiveSeriesClient(self.url, self.spec.name, self.token())

    def _definition(self, series: str) -> bytes:
        """The bytes to send, checked against the file first."""
        if series.startswith("@"):
            try:
                content = Path(series[1:]).read_bytes()
            except OSError as error:
                raise UsageError(
                    f"--series: {series[1:]} cannot be read: {error.strerror}"
                ) from None
        else:
            content = series.encode()
        if len(content) > LARGEST_DEFINITION:
            raise UsageError(f"--series: must not be larger than {LARGEST_DEFINITION} bytes")
        if not series.startswith(("@", "{")) and ":" not in series:
            raise UsageError(
                "--series: must be JSON or YAML, or @ and the name of a file that holds it"
            )
        load_series(content, self.spec, series[1:] if series.startswith("@") else "--series")
        return content
