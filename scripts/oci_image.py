#!/usr/bin/env python3
"""Makes an OCI image of one layer, as a tarball, from a tarball of a root folder.

usage: oci_image.py ROOT.tar IMAGE.tar NAME:TAG

Follows the image layout of the Open Container Initiative; manifest.json beside it is what older versions of `docker load` read.
"""
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile

CHUNK = 1 << 20


class Hashing:
    """Counts and hashes what is written through it."""

    def __init__(self, out):
        self.out, self.hash, self.size = out, hashlib.sha256(), 0

    def write(self, data):
        self.hash.update(data)
        self.size += len(data)
        return self.out.write(data)

    def flush(self):
        self.out.flush()


def compress(source, target):
    """Writes the layer; returns the digest of what is in it, its own digest and its size."""
    inner = hashlib.sha256()
    outer = Hashing(target)
    with gzip.GzipFile(fileobj=outer, mode="wb", compresslevel=6, mtime=0, filename="") as layer:
        while data := source.read(CHUNK):
            inner.update(data)
            layer.write(data)
    return inner.hexdigest(), outer.hash.hexdigest(), outer.size


def add(archive, name, data):
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def add_blob(archive, value):
    data = json.dumps(value, sort_keys=True).encode()
    digest = hashlib.sha256(data).hexdigest()
    add(archive, f"blobs/sha256/{digest}", data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def main(root, image, name):
    with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(image))) as layer:
        with open(root, "rb") as source:
            inner, outer, size = compress(source, layer)
        layer.seek(0)
        with tarfile.open(image, "w") as archive:
            entry = tarfile.TarInfo(f"blobs/sha256/{outer}")
            entry.size = size
            archive.addfile(entry, layer)
            config = add_blob(archive, {
                "architecture": "amd64", "os": "linux",
                "config": {"Cmd": ["cohort", "--help"], "WorkingDir": "/",
                           "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{inner}"]},
            })
            manifest = add_blob(archive, {
                "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **config},
                "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": f"sha256:{outer}", "size": size}],
            })
            add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
            add(archive, "index.json", json.dumps({
                "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", **manifest,
                               "annotations": {"io.containerd.image.name": f"docker.io/library/{name}",
                                               "org.opencontainers.image.ref.name": name.split(":")[1]}}],
            }).encode())
            add(archive, "manifest.json", json.dumps([{
                "Config": "blobs/sha256/" + config["digest"].split(":")[1], "RepoTags": [name],
                "Layers": [f"blobs/sha256/{outer}"]}]).encode())


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
