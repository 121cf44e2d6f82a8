"""Folders and files that the runner uses."""

import os
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).resolve().parent.parent
REPOSITORY = CORPUS.parent
PROGRAMS = CORPUS / "programs"
SOURCES = CORPUS / "sources"
PAGE = REPOSITORY / "docs" / "corpus.md"


@dataclass(frozen=True)
class Places:
    """What a session writes, below one folder that may be removed at any time."""

    root: Path

    @classmethod
    def default(cls):
        return cls(Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")).resolve() / "corpus")

    def environment(self, name):
        """The folder of a virtual environment of Python."""
        return self.root / "venv" / name

    def unpacked(self, package):
        """Where a Debian package is unpacked that is not to be installed."""
        return self.root / "unpacked" / package

    def work(self, name):
        """What a program's preparation makes; read by its samples."""
        return self.root / "work" / name

    @property
    def home(self):
        return self._made("home")

    @property
    def ledger(self):
        return self._made("ledger")

    @property
    def rules(self):
        return self._made("rules")

    @property
    def samples(self):
        return self._made("samples")

    def _made(self, name):
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder
