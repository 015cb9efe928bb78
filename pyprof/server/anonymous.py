# SPDX-License-Identifier: Apache-2.0
"""Data of a page without names: files, paths, hosts, users and modules become numbers, each the same everywhere.

Names are those that the recording has in its tables: files of call stacks, modules of operators, hosts of workers; and
what ends like a file of Python. Every text of the data is taken apart into words and paths, and those that are such a
name are replaced. Names of operators, of functions and of kernels, and texts that a program gave to its ranges, stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from pyprof.store.files import Store

if TYPE_CHECKING:
    from pyprof.server.page_answers import Collected

_WORD = re.compile(r"[^\s'\"<>(),;:=\[\]{}|%…]+")
_HOME = re.compile(r"(?:/home/|/Users/|\\Users\\)([^/\\\s'\":]+)")
# Facts of the machine and the program that name nobody.
_FACTS = re.compile(
    r"(cpu|gpu|cuda|cudnn|torch|python|pyprof|compile|autocast|overhead|threads|matmul|model|optimizer|deterministic|"
    r"default_dtype|anomaly_mode|collector|format|format_version|layers|device|record_shapes|with_stack|profile_memory|"
    r"session_start_unix_ns|t0|slack|displayTimeUnit)(\.|$)"
)
_NUMBER = re.compile(r"\d+$")
_UNQUOTED = "!'()*~-._"


class Names:
    """Replacements of names. `files`, `hosts`, `users`: whole names; `modules`: dotted; `words`: names of operators,
    which stay where they stand alone."""

    def __init__(
        self,
        files: Iterable[str],
        modules: Iterable[str],
        hosts: Iterable[str] = (),
        users: Iterable[str] = (),
        words: Iterable[str] = (),
    ):
        self._known: dict[str, str] = {}
        self._modules: set[tuple[str, ...]] = set()
        self._components: dict[str, str] = {}
        self._words = set(words)
        self._paths: dict[str, str] = {}
        self._memo: dict[str, str] = {}
        for kind, names in (("host", hosts), ("user", users)):
            for number, name in enumerate(dict.fromkeys(filter(None, names)), 1):
                self._known.setdefault(name, f"{kind}{number}")
        self._files = 0
        for name in dict.fromkeys(files):
            base = re.split(r"[/\\]", name)[-1]
            self._known.setdefault(base, self._file(name))
        for module in modules:
            parts = tuple(re.split(r"[./]", module))
            for length in range(1, len(parts) + 1):
                self._modules.add(parts[:length])
            for part in parts:
                if part and not part.isdecimal():
                    # "layer_*" stands for all of a number (overview.py)
                    for name in (part, _NUMBER.sub("*", part)):
                        self._components.setdefault(name, f"module{len(self._components) + 1}")

    @classmethod
    def of(cls, database: str, collected: Collected) -> Names:
        """Return the names of a profile database."""
        from pyprof.views.details import frames

        with Store(database) as store:
            files = {
                frame.file: None
                for (text,) in store.rows("select frames from stack order by id")
                for frame in frames(text or "")
                if frame.line
            }
            files |= {name: None for (name,) in store.rows("select file from source") if name}
            modules = [
                name
                for (name,) in store.rows(
                    """select module from operator union select module from site
                       union select l.text from label l order by 1"""
                )
                if name
            ]
            words = {
                word
                for row in store.rows("select type, mod, op_id from operator")
                for text in row
                if text
                for word in _WORD.findall(text)
            }
            meta = dict(store.meta)
            modules += [meta[key] for key in meta if re.fullmatch(r"model\.\d+\.class", key) and meta[key]]
            hosts, texts = [meta.get("host")], [*meta.values(), *files]
            for name, host, pid, label, process in store.rows(
                "select name, host, pid, label, process from worker order by id"
            ):
                hosts += [host, str(name or "").partition(f"_{pid}")[0], label]
                texts.append(process)
        users = [user for text in texts if text for user in _HOME.findall(text)]
        users += [value for key, value in meta.items() if key in ("user", "username")]
        # "rank 3" is a worker without a name of its own.
        named = [host for host in hosts if host and not re.fullmatch(r"(rank|process|worker)[ _]?\d*", host)]
        return cls(files, modules, named, users, words)

    def text(self, text: str) -> str:
        """Return a text without names.

        >>> names = Names(["/home/user/net.py"], ["net.first"], ["box"], ["anna"])
        >>> names.text("/home/user/net.py:88 in net/first/mm of net.first on box_12 by anna: see /data/x/y")
        'file1:88 in module1/module2/mm of module1.module2 on host1_12 by user1: see path1'
        >>> names.text("lib/load.py(3): read calls lib/load.py(9): item")
        'file2(3): read calls file2(9): item'
        >>> Names([], ["net.Layer_1.Linear_0"]).text("net.Layer_*.Linear_0")
        'module1.module3.module4'
        """
        replaced = self._memo.get(text)
        if replaced is None:
            replaced = self._memo[text] = _WORD.sub(lambda match: self._word(match[0]), text)
        return replaced

    def _file(self, name: str) -> str:
        self._files += 1
        return self._known.setdefault(name, f"file{self._files}")

    def _word(self, word: str) -> str:
        whole = self._known.get(word)
        if whole is not None:
            return whole
        if word.endswith(".py") and word != ".py":  # functions of Python have files that no call stack has
            return self._file(word)
        host, under, number = word.rpartition("_")
        if under and number.isdecimal() and host in self._known:
            return f"{self._known[host]}_{number}"
        separator = next((one for one in "/\\." if one in word), None)
        if separator is None:
            return word if word in self._words else self._components.get(word, word)
        if separator != "." and word.count(separator) > 1 and (word[0] == separator or word[0] in "~."):
            return self._paths.setdefault(word, f"path{len(self._paths) + 1}")
        stripped = word.rstrip(".")
        if stripped != word:
            return self._word(stripped) + word[len(stripped) :] if stripped else word
        parts = word.split(separator)
        for length in range(len(parts), 0, -1):
            if tuple(part for part in parts[:length] if part) in self._modules:
                mapped = [self._components.get(part, part) for part in parts[:length]]
                return separator.join([*mapped, *map(self._word_of, parts[length:])])
        return separator.join(map(self._word_of, parts))

    def _word_of(self, part: str) -> str:
        return self._word(part) if part else part

    def anonymous(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return data of a file (one_file.py) without names. What users wrote in annotations is left out."""
        data = {**data, "answers": dict(data["answers"])}
        notes = data["answers"]["annotations"]
        profile_of_notes = {**notes["profile"], "name": "recording"}
        data["answers"]["annotations"] = {**notes, "file": "", "annotations": [], "profile": profile_of_notes}
        profile = dict(data["answers"]["profile"])
        profile |= {"name": "recording", "path": "recording", "source": None, "run": ""}
        profile["facts"] = {key: value for key, value in profile["facts"].items() if _FACTS.match(key)}
        profile["runs"] = [run | {"name": ""} for run in profile["runs"]]
        data["answers"]["profile"] = profile
        answers = {
            self._key(key): value if key.startswith("timeline/roofline") else self._value(value)
            for key, value in data["answers"].items()
        }
        trees = {}
        for name, tree in data["trees"].items():  # keys of nodes are hashes of their names
            nodes = [node | {"key": f"{number:012x}"} for number, node in enumerate(tree["nodes"])]
            trees[name] = self._value({**tree, "nodes": nodes})
        return {
            **data, "answers": answers, "trees": trees, "tables": self._value(data["tables"]),
            "texts": self._value(data["texts"]),
        }  # fmt: skip

    def _key(self, key: str) -> str:
        if not key.startswith("details/"):
            return key
        head, kind, name = key.split("/", 2)
        return f"{head}/{kind}/{quote(self.text(unquote(name)), safe=_UNQUOTED)}"

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if isinstance(value, dict):
            return {key: self._value(one) for key, one in value.items()}
        return value
