"""Files that are no pipeline and no job at all: their text, their bytes, or what stands there."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

Spoil = Callable[[Random, str], bytes]
_MIB = 1 << 20


def laughs(levels: int, each: int) -> str:
    """Aliases of aliases: a kilobyte that says more than a memory holds."""
    lines = ["a0: &a0 [x]"]
    for level in range(1, levels):
        repeated = ", ".join([f"*a{level - 1}"] * each)
        lines.append(f"a{level}: &a{level} [{repeated}]")
    return "\n".join(lines) + "\n"


def _text(*texts: str) -> Spoil:
    return lambda rng, _: rng.choice(texts).encode()


def _in_front(*texts: str) -> Spoil:
    return lambda rng, right: (rng.choice(texts) + right).encode()


def _behind(*texts: str) -> Spoil:
    return lambda rng, right: (right + rng.choice(texts)).encode()


def _encoded(rng: Random, right: str) -> bytes:
    return f"# ä\n{right}".encode(rng.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "cp037")))


def _with_bytes(rng: Random, right: str) -> bytes:
    strange = rng.choice(
        (b"\0", b"\xff", b"\x1b[2J", b"\x07", b"\xed\xa0\x80", b"\xc0\x80", b"\x7f")
    )
    at = rng.randrange(len(right))
    return right[:at].encode() + strange + right[at:].encode()


def _deep(rng: Random, _: str) -> bytes:
    depth = rng.choice((200, 330, 480, 1_000, 10_000))
    match rng.randrange(4):
        case 0:
            text = "[" * depth + "]" * depth
        case 1:
            text = "{a: " * depth + "1" + "}" * depth
        case 2:
            text = "pipeline: " + "- " * min(depth, 2_000) + "a"
        case _:
            text = "".join(" " * level + "a:\n" for level in range(min(depth, 1_000)))
    return text.encode()


FORMS: Mapping[str, Spoil] = {
    "empty": _text(
        "", "\n", "# nothing\n", "---\n", "---\n...\n", "\ufeff", " ", "%YAML 1.2\n---\n"
    ),
    "no mapping": _text(
        "- a\n", "[]", "words\n", "5", "null", "true", '"x"', "- - - a", "2024-01-01"
    ),
    "no YAML": _text(
        *(
            "a: b: c",
            "a: [1,",
            "{",
            '"',
            "'x",
            "a:\n\tb: 1",
            "%",
            "@a",
            "`a`",
            "a: |x",
            "&",
            "*",
            "!",
        ),
        *(
            "a: &b",
            "a: *b",
            "? ",
            "%YAML 9.9\n---\na: 1",
            "%TAG ! x\n---\na: !x 1",
            "a: !<",
            ": : :",
        ),
        *(
            "- a\nb: 1",
            "a: 1\n - b",
            "a: >9999\n x",
            "a: '\\x'b",
            'a: "\\x"',
            'a: "\\q"',
            "a: {b: 1",
        ),
        *(
            "%FOO\n",
            "!!",
            "a: !!\n",
            "a: &\n",
            "a: *\n",
            "---a",
            "{a: 1, a: 2",
            "[]]",
            "}",
            "a: |\n\tb",
        ),
    ),
    "another language": _text(
        "<pipeline><source>clicks</source></pipeline>",
        "[pipeline]\nname = 'clicks'\n",
        "import os\nos.system('true')\n",
        "#!/bin/sh\nexit 0\n",
        "pipeline = clicks\nsource.topic = clicks.raw\n",
        "Traceback (most recent call last):\n  File x\n",
    ),
    "several documents": lambda rng, right: (
        f"{right}---\n{rng.choice((right, 'a: 1', ''))}\n".encode()
    ),
    "a tab": lambda _, right: (
        right.replace("  ", "\t", 1).encode() if "\n  " in right else f"\t{right}".encode()
    ),
    "a line too many": _behind("words\n", "- a\n", "  a: 1\n", "}\n", ": x\n", "* \n", "a: b: c\n"),
    "a broken beginning": _in_front("- a\n", "}\n", "words\n", '"\n', "[\n", "%YAML 9\n", "&a &b "),
    "another encoding": _encoded,
    "strange bytes": _with_bytes,
    "packed": lambda _, right: gzip.compress(right.encode()),
    "random bytes": lambda rng, _: b"\xfe" + rng.randbytes(rng.choice((1, 100, 100_000))),
    "JSON of something else": lambda rng, _: json.dumps(
        {"name": "x", "version": rng.random()}
    ).encode(),
    "deep": _deep,
    "laughs": lambda rng, right: (laughs(rng.choice((9, 40)), 9) + right).encode(),
    "laughs at length": lambda _, right: (
        laughs(9, 9) + right.replace('"', "") + "x: *a8\n"
    ).encode(),
    "an alias of itself": _in_front("a: &a [*a]\n", "a: &a {b: *a}\n", "&a a: *b\n"),
    "many keys": lambda _, right: (right + "".join(f"k{n}: 1\n" for n in range(20_000))).encode(),
    "a long line": lambda rng, right: (
        right + "x: " + "y" * rng.choice((5_000, 2 * _MIB))
    ).encode(),
    "a long key": lambda rng, right: (right + "y" * rng.choice((900, 5_000)) + ": 1\n").encode(),
    "a long comment": lambda _, right: (right + "#" + "x" * (2 * _MIB)).encode(),
}
HUGE: Mapping[str, Spoil] = {
    "a line of 100 MB": lambda _, right: right.encode() + b"x: " + b"y" * (100 * _MIB),
    "100 MB of brackets": lambda _, __: b"[" * (100 * _MIB),
}


def _missing(_: Random, file: Path) -> Path:
    return file.with_name("absent.yaml")


def _folder(_: Random, file: Path) -> Path:
    file.mkdir()
    return file


def _dangling(_: Random, file: Path) -> Path:
    file.symlink_to(file.with_name("absent.yaml"))
    return file


def _turning(_: Random, file: Path) -> Path:
    file.symlink_to(file)
    return file


def _inside_a_file(_: Random, file: Path) -> Path:
    file.write_text("a: 1")
    return file / "pipeline.yaml"


def _too_long(_: Random, file: Path) -> Path:
    return file.with_name("x" * 5_000)


def _not_for_us(_: Random, __: Path) -> Path:
    return Path("/proc/self/mem")


def _endless(_: Random, __: Path) -> Path:
    return Path("/dev/zero")


def _nothing(_: Random, __: Path) -> Path:
    return Path("/dev/null")


PLACES: Mapping[str, Callable[[Random, Path], Path]] = {
    "no file": _missing,
    "a folder": _folder,
    "a link to nothing": _dangling,
    "a link to itself": _turning,
    "a file as a folder": _inside_a_file,
    "a name too long": _too_long,
    "a file that cannot be read": _not_for_us,
    "a file without end": _endless,
    "no bytes": _nothing,
}
