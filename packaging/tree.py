"""What the scripts that release and pack read of the tree."""

import re


def version(root):
    """Returns the version of the workspace."""
    return re.search(r'^\[workspace\.package\]\nversion = "(.*)"$', (root / "Cargo.toml").read_text(), re.MULTILINE)[1]


def address(root):
    """Returns the address of the repository, or None while packaging/repository has none; ValueError for other texts."""
    text = (root / "packaging/repository").read_text()
    words = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not words:
        return None
    if len(words) > 1 or not re.match(r"https://[^/\s]+/\S+[^/\s]$", words[0]):
        raise ValueError("packaging/repository is to have one address, as https://HOST/OWNER/trimtab")
    return words[0]
