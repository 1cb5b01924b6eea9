# SPDX-License-Identifier: Apache-2.0
"""A certificate for one job, and an authority that has signed it and nothing else.

The authority's own key is never written, and forgotten here: nobody can sign another certificate
that processes of the job would believe. Importing this needs `cryptography`.
"""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainmover.tls.files import TlsFiles

LASTS = timedelta(days=3650)
"""Longer than any job: who dials after a certificate's end does not believe it any more."""
_CLOCKS_DIFFER = timedelta(days=1)
_NAME_CHARACTERS_MAX = 64


def make(directory: Path, name: str, hosts: Sequence[str], lasts: timedelta = LASTS) -> TlsFiles:
    """Three files in a new private directory; the key's for its user only.

    name   of the job
    hosts  addresses and names under which its listeners are dialled
    """
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _subject(f"trainmover {name}, authority")
    ca = _signed(
        _begun(authority, authority, authority_key.public_key(), lasts)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True),
        authority_key,
    )
    cert = _signed(
        _begun(_subject(f"trainmover {name}"), authority, key.public_key(), lasts)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([*map(_named, hosts)]), critical=False),
        authority_key,
    )
    directory.mkdir(mode=0o700)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return TlsFiles(
        ca=_write(directory / "ca.pem", ca.public_bytes(Encoding.PEM)),
        cert=_write(directory / "cert.pem", cert.public_bytes(Encoding.PEM)),
        key=_write(directory / "key.pem", private),
    )


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + lasts)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder, authority: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    return builder.add_extension(by, critical=False).sign(authority, SHA256())


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_NAME_CHARACTERS_MAX])])


def _named(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, data: bytes) -> str:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    return str(path)
