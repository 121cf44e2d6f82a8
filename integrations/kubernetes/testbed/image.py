#!/usr/bin/env python3
"""Writes a container image without a registry: files from this machine in one layer, as an OCI archive.

    image.py ARCHIVE NAME [--entry WORD...] FILE=/PATH/INSIDE...

`ctr -n k8s.io images import ARCHIVE` makes it known to containerd. A name of the form docker.io/local/NAME:TAG is the one
that pods use with imagePullPolicy: Never.
"""

import hashlib
import io
import json
import os
import platform
import sys
import tarfile

LAYOUT = "application/vnd.oci.image"


def layer(files):
    """The tar archive of the files, the same bytes for the same files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        folders = set()
        for source, inside in files:
            inside = inside.strip("/")
            above = os.path.dirname(inside)
            missing = []
            while above and above not in folders:
                missing.append(above)
                above = os.path.dirname(above)
            for folder in reversed(missing):
                folders.add(folder)
                info = tarfile.TarInfo(folder)
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
            info = tarfile.TarInfo(inside)
            with open(source, "rb") as file:
                info.size, info.mode = os.fstat(file.fileno()).st_size, 0o755
                archive.addfile(info, file)
        info = tarfile.TarInfo("tmp")
        info.type, info.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(info)
    return out.getvalue()


def image(archive, name, entry, files):
    """Writes the archive of the image."""
    blobs = {}

    def blob(data, kind):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"{LAYOUT}.{kind}", "digest": digest, "size": len(data)}

    contents = layer(files)
    made = blob(contents, "layer.v1.tar")
    processor = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    config = {
        "architecture": processor,
        "os": "linux",
        "config": {"Entrypoint": entry, "Env": ["PATH=/bin:/usr/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [made["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{LAYOUT}.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [made],
    }
    listed = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    listed["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "mediaType": f"{LAYOUT}.index.v1+json", "manifests": [listed]}
    texts = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode()}
    texts.update({"blobs/sha256/" + digest.partition(":")[2]: data for digest, data in blobs.items()})
    with tarfile.open(archive, "w") as out:
        for path, data in texts.items():
            info = tarfile.TarInfo(path)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))


def main(words):
    entry = []
    if "--entry" in words:
        at = words.index("--entry")
        rest = words[at + 1 :]
        entry = [word for word in rest if "=/" not in word]
        words = words[:at] + [word for word in rest if "=/" in word]
    if len(words) < 3 or not all("=/" in word for word in words[2:]):
        sys.exit(__doc__)
    image(words[0], words[1], entry, [tuple(word.split("=", 1)) for word in words[2:]])


if __name__ == "__main__":
    main(sys.argv[1:])
