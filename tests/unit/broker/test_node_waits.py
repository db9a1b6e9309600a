"""Waiting for nodes that are made up: each look at one is its next moment."""

from collections.abc import Sequence
from pathlib import Path

from stream_dp.broker.process import Node, until_fenced


class Told(Node):
    """A node whose log says at each look who is fenced, and whose files then have so many bytes."""

    def __init__(self, folder: Path, fenced: Sequence[set[int]], written: Sequence[int]) -> None:
        super().__init__(folder)
        self._said, self.sizes = list(fenced), list(written)

    @property
    def fenced(self) -> set[int]:
        """The next, or the last for good."""
        return self._said.pop(0) if len(self._said) > 1 else self._said[0]

    @property
    def written(self) -> int:
        """The next, or the last for good."""
        return self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]


async def test_a_fence_is_waited_for_until_it_is_written(tmp_path: Path) -> None:
    """A controller that ends when it has said so loses it: the first growth may be what was under way before."""
    node = Told(tmp_path, [set(), {1}], [10, 10, 10, 11, 11, 11, 12, 13])
    await until_fenced([node], 600)
    assert node.sizes == [13]


async def test_every_node_has_it(tmp_path: Path) -> None:
    ahead = Told(tmp_path, [{1, 2}], [10, 20, 20, 30, 30, 40])
    behind = Told(tmp_path, [set()], [5, 9, 15, 20, 25, 30, 31])
    await until_fenced([ahead, behind], 600)
    assert behind.sizes == [31]


async def test_what_does_not_come_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    await until_fenced([Told(tmp_path, [set()], [10])], 0.01)
    await until_fenced([Told(tmp_path, [{1}], [10])], 0.01)


def test_what_is_written_is_in_the_files_of_the_controllers(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.written == 0
    folder = tmp_path / "data" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    for name, content in (("0.log", b"12345"), ("5.log", b"67"), ("0.index", b"not counted")):
        (folder / name).write_bytes(content)
    assert node.written == 7
