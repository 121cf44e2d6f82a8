"""A film in YUV4MPEG2 on standard output:   film.py WIDTH HEIGHT FRAMES"""

import sys

width, height, frames = (int(word) for word in sys.argv[1:])
out = sys.stdout.buffer
out.write(f"YUV4MPEG2 W{width} H{height} F25:1 Ip C420\n".encode())
rows = [bytes((x * x // 64 + y * 3) % 256 for x in range(2 * width)) for y in range(height)]
for frame in range(frames):
    out.write(b"FRAME\n")
    for y in range(height):
        out.write(rows[(y + frame) % height][frame * 3 % width:][:width])
    out.write(bytes([128]) * (width * height // 2))
