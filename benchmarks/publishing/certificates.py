"""A certificate for the servers that clients are measured against."""

import subprocess
from pathlib import Path


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for localhost that signs itself; return its file and that of its key."""
    made, key = folder / "certificate.pem", folder / "key.pem"
    command = [
        *("openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"),
        *("-keyout", str(key), "-out", str(made)),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return made, key
