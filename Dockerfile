# What every task of a service runs, told by its command: a consumer's worker or the relay. It holds code and no
# declaration: the stacks give each task its part. docs/guides/image.md
# BASE is pinned by its digest with `make pin`, where a network is; `make image` puts a base of its own there.
ARG BASE=docker.io/library/python:3.13-slim-trixie
FROM ${BASE}

# The tasks' file system is read-only.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# The OpenSSL that psycopg brings looks for certificates where nobody puts them. RDS's are in sluice/.
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
WORKDIR /app

COPY requirements-worker.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements-worker.lock \
    && useradd --uid 10001 --no-log-init --no-create-home --shell /usr/sbin/nologin sluice

COPY sluice sluice/
COPY examples examples/

USER 10001
# Without a shell, which would keep SIGTERM to itself.
CMD ["python", "-m", "sluice", "worker"]
