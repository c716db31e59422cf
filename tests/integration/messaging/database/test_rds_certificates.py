"""The authorities of RDS that come with the library: their origin, their expiry, and the hosts they are used for."""

import hashlib
import json
import re
import ssl
from typing import Any

import pytest
from sqlalchemy import make_url

from sluice.clock import Clock, SystemClock, VirtualClock
from sluice.messaging.database.credentials import RDS_CERTIFICATES, database_url

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_NAME = re.compile(r"Amazon RDS ([a-z0-9-]+) Root CA (RSA2048|RSA4096|ECC384) G1")
_NOTICE_SECONDS = 2 * 365 * 86_400
_CLUSTER = "sluice.cluster-c1a2b3.eu-central-1.rds.amazonaws.com"


def _certificates() -> list[dict[str, Any]]:
    """Return every certificate in the file of RDS's certificates, as Python's ssl module describes it."""
    found = []
    for text in _CERTIFICATE.findall(RDS_CERTIFICATES.read_text(encoding="ascii")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=text)
        found += context.get_ca_certs()
    return found


def _subject(certificate: dict[str, Any]) -> dict[str, str]:
    """Return the fields of a certificate's subject, by name."""
    return {name: value for ((name, value),) in certificate["subject"]}


def _expiring(clock: Clock) -> list[str]:
    """Return the names of the certificates that expire within two years."""
    until = clock.now_us() / 1_000_000 + _NOTICE_SECONDS
    return [
        _subject(certificate)["commonName"]
        for certificate in _certificates()
        if ssl.cert_time_to_seconds(certificate["notAfter"]) < until
    ]


def test_the_certificates_of_rds_are_the_reviewed_file() -> None:
    """Its hash was compared with the file that AWS publishes; any change needs another comparison."""
    assert hashlib.sha256(RDS_CERTIFICATES.read_bytes()).hexdigest() == (
        "f159d8baad546754121bf45eafab725b56cd6d1c6774ec3be74328070adb6a92"
    )


def test_each_region_of_rds_has_three_self_signed_roots() -> None:
    """The library's file has the roots of 81 regions, and three kinds of key for each region."""
    subjects = [_subject(certificate) for certificate in _certificates()]
    names = [_NAME.fullmatch(subject["commonName"]) for subject in subjects]

    assert {(subject["organizationName"], subject["organizationalUnitName"]) for subject in subjects} == {
        ("Amazon Web Services, Inc.", "Amazon RDS")
    }
    assert all(certificate["issuer"] == certificate["subject"] for certificate in _certificates())
    assert all(names)
    regions = [name[1] for name in names if name]
    assert len(regions) == 81
    assert {regions.count(region) for region in regions} == {3}


def test_no_certificate_expires_within_two_years() -> None:
    """The test turns red two years before the first one expires. In 2061, 27 of them do."""
    assert _expiring(SystemClock()) == []
    assert len(_expiring(VirtualClock(start_us=2_900_000_000_000_000))) == 27  # in 2061, the RSA2048 ones


@pytest.mark.parametrize(
    ("host", "variables", "file"),
    ids=["cluster of RDS", "proxy of RDS", "other host", "file in SLUICE_DATABASE_CA"],
    argvalues=[
        (_CLUSTER, {}, str(RDS_CERTIFICATES)),
        ("proxy-1.proxy-c1a2b3.eu-central-1.rds.amazonaws.com", {}, "system"),
        ("db.internal", {}, "system"),
        (_CLUSTER, {"SLUICE_DATABASE_CA": __file__}, __file__),
    ],
)
def test_a_host_of_rds_is_verified_by_the_certificates_of_rds(host: str, variables: dict[str, str], file: str) -> None:
    """The library's file verifies a cluster, and the system's certificates verify a proxy of RDS or another host.

    A file that SLUICE_DATABASE_CA names takes precedence.
    """

    class Secrets:
        def get_secret_value(self, **_: str) -> dict[str, str]:
            return {"SecretString": json.dumps({"username": "u", "password": "p", "host": host, "dbname": "d"})}

    url = make_url(database_url(Secrets(), "arn:secret", variables))

    assert dict(url.query) == {"sslmode": "verify-full", "sslrootcert": file}
