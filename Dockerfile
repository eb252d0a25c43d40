# One image for the worker, the bridge and Flower: only the command differs. A release pins the base by its digest:
#   docker build --build-arg PYTHON_IMAGE=python:3.12-slim@sha256:… .
ARG PYTHON_IMAGE=python:3.12-slim
FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
RUN python -m venv /venv
COPY requirements-image.lock ./
RUN /venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements-image.lock
# The SBOM is there after `make dist`.
COPY pyproject.toml setup.py README.md LICENSE sbom.cdx.jso[n] ./
COPY bridge bridge
COPY lossless lossless
COPY tasks tasks
COPY examples examples
RUN /venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

FROM ${PYTHON_IMAGE}
ARG PYTHON_IMAGE
LABEL org.opencontainers.image.title="celery-kafka-bridge" \
      org.opencontainers.image.description="Handle Kafka records with Celery tasks: retried with backoff, dead-lettered, never lost" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --system --uid 10001 --user-group --home-dir /app --no-create-home bridge
COPY --from=build /venv /venv
# The user's part: an image of your own starts FROM this one and copies its celeryconfig.py and handlers to /app.
WORKDIR /app
COPY celeryconfig.py ./
COPY examples examples
USER bridge
CMD ["python", "-m", "bridge"]
