"""Starts memcached at a socket in this folder, sets and gets, and kills it."""

import os
import socket
import subprocess
import time

server = subprocess.Popen(["memcached", "-u", "root", "-t", "2", "-s", os.path.abspath("socket")])
while not os.path.exists("socket"):
    time.sleep(0.02)
client = socket.socket(socket.AF_UNIX)
client.connect("socket")
stream = client.makefile("rwb")
for number in range(8000):
    stream.write(f"set key{number} 0 0 {len(str(number))}\r\n{number}\r\n".encode())
    stream.flush()
    assert stream.readline() == b"STORED\r\n"
stream.write(b"get key77\r\nstats\r\n")
stream.flush()
while (line := stream.readline()) != b"END\r\n" or line == b"":
    print(line.decode().strip())
while (line := stream.readline()) != b"END\r\n":
    if line.split()[1] in (b"threads", b"curr_items", b"cmd_set"):
        print(line.decode().strip())
# memcached looks once a second whether it was asked to end: a time that says nothing of the program.
server.kill()
print("status", server.wait())
