"""A worker of torchrun: says its rank and how many threads it may use."""

import os
import sys

import torch

# One write: two workers share the stream.
sys.stdout.write(f"rank {os.environ['RANK']} OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS')} threads {torch.get_num_threads()}\n")
