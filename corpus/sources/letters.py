"""Made-up sequences in FASTA or FASTQ on standard output:   letters.py genome|reads|proteins COUNT LENGTH"""

import random
import sys

kind, count, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(7)
if kind == "proteins":
    first = draw.choices("ACDEFGHIKLMNPQRSTVWY", k=length)
    for number in range(count):
        letters = [draw.choice("ACDEFGHIKLMNPQRSTVWY") if draw.random() < 0.2 else letter for letter in first]
        print(f">p{number}\n{''.join(letters)}")
else:
    genome = "".join(draw.choices("ACGT", k=400_000))
    if kind == "genome":
        print(">g")
        print(*(genome[at:at + 60] for at in range(0, len(genome), 60)), sep="\n")
    for number in range(count if kind == "reads" else 0):
        at = draw.randrange(len(genome) - length)
        letters = [draw.choice("ACGT") if draw.random() < 0.02 else letter for letter in genome[at:at + length]]
        print(f"@r{number}\n{''.join(letters)}\n+\n{'I' * length}")
