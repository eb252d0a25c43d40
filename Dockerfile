# One image for the worker, the bridge and Flower: only the command differs.
FROM python:3.12-slim AS build
WORKDIR /source
RUN python -m venv /venv
COPY requirements-image.lock ./
RUN /venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY bridge bridge
COPY lossless lossless
COPY tasks tasks
COPY examples examples
RUN /venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

FROM python:3.12-slim
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --system --uid 10001 --user-group --home-dir /app --no-create-home bridge
COPY --from=build /venv /venv
# The user's part: an image of your own starts FROM this one and copies its celeryconfig.py and handlers to /app.
WORKDIR /app
COPY celeryconfig.py ./
COPY examples examples
USER bridge
CMD ["python", "-m", "bridge"]
