#!/usr/bin/env python3
"""torch.distributed over a team: the program of gloo.py with the backend of the Python package (scripts/test-python builds it)."""

import sys

import gloo
import trimtab_team.torch  # noqa: F401  registers the backend

if __name__ == "__main__":
    sys.exit(gloo.main("torch_trimtab.py", "torch-trimtab", "trimtab"))
