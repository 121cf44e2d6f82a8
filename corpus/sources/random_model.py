"""Writes a small model of random weights for llama.cpp in its format GGUF:   random_model.py FILE"""

import struct
import sys

import numpy

WIDTH, LAYERS, HEADS, INNER, CONTEXT = 512, 4, 8, 1536, 256
U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5
TOKENS = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + [f"\u2581{word}" for word in "abcdefghijklmnopqrstuvwxyz"]
ALIGNMENT = 32


def text(words):
    content = words.encode()
    return struct.pack("<Q", len(content)) + content


def value(kind, content):
    return struct.pack("<I", kind) + {U32: lambda: struct.pack("<I", content), F32: lambda: struct.pack("<f", content),
                                      STRING: lambda: text(content)}[kind]()


def array(kind, contents):
    packed = {STRING: text, F32: lambda one: struct.pack("<f", one), I32: lambda one: struct.pack("<i", one)}[kind]
    return struct.pack("<IIQ", ARRAY, kind, len(contents)) + b"".join(map(packed, contents))


KINDS = [2, 3, 3] + [6] * 256 + [1] * 26  # unknown, control, bytes, words
ABOUT = {
    "general.architecture": value(STRING, "llama"),
    "general.name": value(STRING, "random"),
    "llama.context_length": value(U32, CONTEXT),
    "llama.embedding_length": value(U32, WIDTH),
    "llama.block_count": value(U32, LAYERS),
    "llama.feed_forward_length": value(U32, INNER),
    "llama.attention.head_count": value(U32, HEADS),
    "llama.attention.layer_norm_rms_epsilon": value(F32, 1e-5),
    "llama.rope.dimension_count": value(U32, WIDTH // HEADS),
    "tokenizer.ggml.model": value(STRING, "llama"),
    "tokenizer.ggml.tokens": array(STRING, TOKENS),
    "tokenizer.ggml.scores": array(F32, [-float(at) for at in range(len(TOKENS))]),
    "tokenizer.ggml.token_type": array(I32, KINDS),
    "tokenizer.ggml.bos_token_id": value(U32, 1),
    "tokenizer.ggml.eos_token_id": value(U32, 2),
}


def shapes():
    yield "token_embd.weight", (len(TOKENS), WIDTH)
    for layer in range(LAYERS):
        for name, shape in {"attn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH),
                            "attn_output": (WIDTH, WIDTH), "ffn_norm": (WIDTH,), "ffn_gate": (INNER, WIDTH),
                            "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}.items():
            yield f"blk.{layer}.{name}.weight", shape
    yield "output_norm.weight", (WIDTH,)
    yield "output.weight", (len(TOKENS), WIDTH)


draw = numpy.random.default_rng(7)
tensors = [(name, (draw.standard_normal(shape) * (0.05 if len(shape) > 1 else 1)).astype("float32")) for name, shape in shapes()]
with open(sys.argv[1], "wb") as file:
    file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(ABOUT)))
    for name, content in ABOUT.items():
        file.write(text(name) + content)
    position = 0
    for name, tensor in tensors:
        file.write(text(name) + struct.pack("<I", tensor.ndim) + struct.pack(f"<{tensor.ndim}Q", *reversed(tensor.shape)))
        file.write(struct.pack("<IQ", 0, position))
        position += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
    for _, tensor in tensors:
        file.write(bytes(-file.tell() % ALIGNMENT) + tensor.tobytes())
