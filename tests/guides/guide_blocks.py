"""Documents as lists of code blocks, and the promises that the tests keep about them.

A document is any Markdown text. Every fenced block of it must have a promise: a sentence, and a function that runs the
block and asserts on the server or the repository what the sentence says. A block without a promise fails.
"""

import dataclasses
import re


@dataclasses.dataclass
class Block:
    """One fenced block. `number` counts from 1 within its document."""

    document: str
    number: int
    language: str
    heading: str
    line: int
    code: str


FENCE = re.compile(r"^(\s*)```(\S*)\s*$")


def read(path):
    """The blocks of a document."""
    blocks, heading, open_block, lines = [], "", None, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if open_block is not None:
            if fence and not fence.group(2):
                blocks.append(Block(path.stem, len(blocks) + 1, *open_block, "\n".join(lines) + "\n"))
                open_block, lines = None, []
            else:
                lines.append(line)
        elif fence:
            open_block = (fence.group(2), heading, number)
        elif line.startswith("#"):
            heading = line.lstrip("# ").strip()
    return blocks


@dataclasses.dataclass
class Promise:
    sentence: str
    keep: object


PROMISES = {}
#: What the table at the end shows.
KEPT = []


def promise(document, number, sentence):
    """Registers the function that runs this block and asserts what it promises: `keep(block, world)`."""

    def register(keep):
        assert (document, number) not in PROMISES, f"two promises for block {number} of {document}"
        PROMISES[document, number] = Promise(sentence, keep)
        return keep

    return register


def keep(block, world, document):
    """Runs one block and asserts its promise."""
    made = PROMISES.get((document, block.number))
    assert made, f"block {block.number} of {document} (line {block.line}, {block.heading!r}) promises something untested"
    row = [document, block.number, block.language or "text", block.heading, made.sentence, "FAILED"]
    KEPT.append(row)
    row[-1] = made.keep(block, world) or "as promised"
