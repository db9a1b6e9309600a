"""`flink run -pym stream_dp.integrations.flink PIPELINE.yaml`: the lanes of a pipeline as a job of its own; started by
Python alone, on a cluster within the process.
"""

from argparse import ArgumentParser
from pathlib import Path

from stream_dp.integrations.flink import host_lanes


def main() -> None:
    from pyflink.datastream import StreamExecutionEnvironment

    arguments = ArgumentParser("python -m stream_dp.integrations.flink", description=__doc__)
    arguments.add_argument("pipeline", type=Path)
    arguments.add_argument(
        "--key-file", type=Path, help="what `stream-dp worker --export-key` wrote"
    )
    given = arguments.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    host_lanes(env, given.pipeline, given.key_file)
    env.execute(f"stream_dp lanes of {given.pipeline.stem}")


if __name__ == "__main__":
    main()
