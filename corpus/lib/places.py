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
    """Where a session writes; what is below the root may be removed between sessions."""

    root: Path
    session: Path  # what belongs to one session, and ends with it

    @classmethod
    def default(cls):
        root = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")).resolve() / "corpus"
        # A short path, since names of sockets below it are bounded; not in TMPDIR for the same reason.
        return cls(root, Path(f"/tmp/corpus-{os.getpid()}"))

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
    def ledger(self):
        return made(self.session / "ledger")

    @property
    def rules(self):
        return made(self.session / "rules")

    @property
    def samples(self):
        return made(self.session / "samples")

    @property
    def home(self):
        return made(self.root / "home")


def made(folder):
    folder.mkdir(parents=True, exist_ok=True)
    return folder
