"""Certificates for one test run, made by the `openssl` command."""

from __future__ import annotations

import subprocess
from pathlib import Path

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]


class Authority:
    """Vouches for certificates that it issues."""

    def __init__(self, folder: Path, name: str) -> None:
        """Make its own certificate in a folder."""
        self._folder = folder
        self._key = folder / f"{name}.key"
        self.file = folder / f"{name}.pem"
        extensions = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
        _openssl(
            *("req", "-x509", *_KEY, "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *(word for one in extensions for word in ("-addext", one)),
            *("-keyout", self._key, "-out", self.file),
        )

    def issue(self, name: str, *, for_host: str = "", password: str = "", days: int = 2) -> Path:
        """One file with a certificate and its key; one of days in the past has expired."""
        key, request, certificate, whole = (
            self._folder / f"{name}.{suffix}" for suffix in ("key", "csr", "crt", "whole.pem")
        )
        secrecy = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        _openssl(
            "req", "-new", *_KEY, *secrecy, "-subj", f"/CN={name}", "-keyout", key, "-out", request
        )
        extensions = self._folder / f"{name}.extensions"
        extensions.write_text(f"subjectAltName={for_host or f'DNS:{name}'}\n")
        _openssl(
            *("x509", "-req", "-days", str(days), "-in", request, "-extfile", extensions),
            *("-CA", self.file, "-CAkey", self._key, "-CAcreateserial", "-out", certificate),
        )
        whole.write_text(key.read_text() + certificate.read_text())
        return whole


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)  # noqa: S607
    assert done.returncode == 0, done.stderr
