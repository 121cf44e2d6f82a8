"""Lets llama.cpp continue a line by the most probable tokens; prints them:   llama_model.py MODEL"""

import hashlib
import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = 256
params.warmup = False
params.cpuparams.n_threads = 2
server = xllamacpp.Server(params)
answer = server.handle_completions({"prompt": "a b c d e f g h", "max_tokens": 100, "temperature": 0, "seed": 7, "ignore_eos": True})
words = str(answer["choices"][0]["text"])
print("tokens", answer["usage"]["completion_tokens"], "text", hashlib.sha256(words.encode()).hexdigest()[:16])
