# `make demo` and `make test` need Python 3.11 or newer, and nothing else; the rest says what it needs.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

# The first Python that is new enough and can make a virtual environment. Another: make PYTHON=/path/to/python …
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { command -v $$python; break; }; done)
BIN := .venv/bin
INSTALLED := .venv/.installed
KAFKA := .kafka/libs/.fetched
FOREIGN := .kafka/foreign/classes/.compiled
APICURIO := .kafka/apicurio/.fetched
HELM := build/helm/helm
NEWER := .newer/.unpacked
SITE := build/docs
LOSSLESS := build/lossless
# The slowest tests of a run, by name.
DURATIONS := --durations=25 --durations-min=1
DIST := build/dist

# Only `make test` is the same everywhere. The tests that need servers fetch Kafka if Java and Maven are here.
ifeq ($(KAFKA_LIBS),)
HAVE_MAVEN := $(shell command -v java >/dev/null 2>&1 && command -v mvn >/dev/null 2>&1 && echo yes)
HAVE_JDK := $(if $(HAVE_MAVEN),$(shell command -v javac >/dev/null 2>&1 && echo yes))
REAL_KAFKA := $(if $(HAVE_MAVEN),$(KAFKA)) $(if $(HAVE_JDK),$(FOREIGN))
endif

.PHONY: help
help:
	@echo 'make demo          records, retries and dead letters to look at, on servers that it brings along'
	@echo 'make test          the tests that need no server but those of the lock file (at most four minutes), without lossless'
	@echo 'make test-servers  the tests with redis-server, Kafka, PostgreSQL, RabbitMQ, Chromium, as far as they are here'
	@echo 'make test-all      these and make test-lossless'
	@echo 'make test-lossless the distribution celery-lossless by itself: its wheel and its tests (a minute)'
	@echo 'make check         lint, types, make test and make test-lossless'
	@echo 'make lint types    ruff; mypy'
	@echo 'make slow          the tests that take their time'
	@echo 'make chaos         kills, stops and freezes servers and processes for minutes'
	@echo 'make chaos-desk    of these, the run of the dead-letter desk, with PostgreSQL, recorders and an operator'
	@echo 'make compose-test  docker-compose.yml for real (needs a Docker engine)'
	@echo 'make bench         the measured figures'
	@echo 'make kafka         fetch Apache Kafka for the tests (needs Maven)'
	@echo 'make newer-servers unpack newer servers and Pythons than the system has (needs apt-get)'
	@echo 'make apicurio      fetch Apicurio Registry for a test (needs Maven; 160 MB)'
	@echo 'make foreign       fetch Spring Kafka and Kafka Connect for the tests (needs Maven and a JDK)'
	@echo 'make house         the size and the names of the product, as a table'
	@echo 'make screenshots   the pictures of the README (needs Chromium)'
	@echo 'make openapi       write docs/reference/openapi.json again'
	@echo 'make reference     write docs/reference/cli.md, the tables of pause reasons, alert rules and dashboards again'
	@echo 'make helm          build Helm for the tests of the chart (needs Go; 100 CPU seconds)'
	@echo 'make manifests     write deploy/kubernetes from the chart again (needs Helm)'
	@echo 'make docs          the documentation as a site, build/docs/site; a broken link fails'
	@echo 'make dist          sdist and wheel, with their SBOM, checked: dist/ (docs/contributors/release.md)'
	@echo 'make smoke         run the wheel on each Python that is here'
	@echo 'make lock          make the lock files again'
	@echo 'make clean         remove everything that make made'

$(INSTALLED): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo 'No Python 3.11 or newer with venv was found (on Debian: apt install python3-venv).' \
		'Install one, or name it: make PYTHON=/path/to/python' >&2; exit 1; }
	@echo 'Installing into .venv: some minutes, without output.'
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(KAFKA): tests/kafka/pom.xml
	@command -v mvn >/dev/null || { echo 'Maven is needed to fetch Apache Kafka (on Debian: apt install maven).' >&2; exit 1; }
	rm -rf .kafka/libs
	mvn --quiet --batch-mode --file tests/kafka/pom.xml dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory="$(CURDIR)/.kafka/libs"
	touch $@

$(APICURIO): tests/apicurio/pom.xml
	rm -rf .kafka/apicurio
	mvn --quiet --batch-mode --file tests/apicurio/pom.xml dependency:copy-dependencies \
		-DoutputDirectory="$(CURDIR)/.kafka/apicurio"
	# Not by Maven, which cuts long names of files.
	tar -xzf .kafka/apicurio/*.tar.gz -C .kafka/apicurio && rm .kafka/apicurio/*.tar.gz
	touch $@

# With it goes what was compiled against other versions of them.
$(FOREIGN): tests/foreign/pom.xml $(wildcard tests/foreign/*.java)
	@command -v mvn >/dev/null && command -v javac >/dev/null || { echo 'Maven and a JDK are needed to fetch Spring Kafka' \
		'and Kafka Connect (on Debian: apt install maven default-jdk-headless).' >&2; exit 1; }
	rm -rf .kafka/foreign
	mvn --quiet --batch-mode --file tests/foreign/pom.xml dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory="$(CURDIR)/.kafka/foreign/libs"
	javac -cp '.kafka/foreign/libs/*' -d .kafka/foreign/classes tests/foreign/*.java
	touch $@

$(NEWER): tests/servers/newer.sh
	sh tests/servers/newer.sh .newer
	touch $@

.PHONY: demo test test-servers test-all test-lossless lint types check slow chaos chaos-desk compose-test bench kafka apicurio foreign newer-servers house screenshots openapi reference helm manifests docs dist smoke lock clean
demo: $(INSTALLED)
	$(BIN)/bridge demo $(ARGS)

# The same on every machine: Redis is Valkey, Kafka the cluster in librdkafka, the database SQLite.
# Two at a time, each with servers of its own. One at a time: ARGS='-n 0'. `make test-lossless` runs what it leaves out.
test: $(INSTALLED)
	$(BIN)/python -m pytest --ignore=tests/lossless --numprocesses 2 --dist worksteal $(ARGS)

# With this machine's servers: what needs one, and once more what uses a Redis. Most of these tests wait most of the time.
test-servers: $(INSTALLED) $(REAL_KAFKA)
	$(BIN)/python -m pytest --redis-server -m '(servers or redis) and not slow and not chaos and not compose' \
		--numprocesses 3 --dist worksteal $(DURATIONS) $(ARGS)

test-all: test test-lossless test-servers

# The distribution in `lossless` alone: its wheel in an environment without the project, its tests in a folder without it.
# Built from a copy: setuptools leaves what it makes beside its source.
$(LOSSLESS)/venv/.installed: requirements-lossless.lock
	rm -rf $(LOSSLESS)/venv
	$(PYTHON) -m venv $(LOSSLESS)/venv
	$(LOSSLESS)/venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-lossless.lock
	touch $@

# Four at a time: they wait most of the time.
test-lossless: $(LOSSLESS)/venv/.installed
	rm -rf $(LOSSLESS)/source $(LOSSLESS)/dist $(LOSSLESS)/alone
	mkdir -p $(LOSSLESS)/source $(LOSSLESS)/alone
	tar -chf - --exclude=__pycache__ lossless | tar -xf - -C $(LOSSLESS)/source
	tar -cf - --exclude=__pycache__ pyproject.toml docs/concepts/lossless.md tests/lossless tests/servers \
		tests/project_process.py | tar -xf - -C $(LOSSLESS)/alone
	$(LOSSLESS)/venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--wheel-dir $(LOSSLESS)/dist $(LOSSLESS)/source/lossless
	$(LOSSLESS)/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall $(LOSSLESS)/dist/*.whl
	cd $(LOSSLESS)/alone && ../venv/bin/python -m pytest -p tests.servers.redis_fixtures --confcutdir=tests/lossless \
		tests/lossless --numprocesses 4 --dist worksteal \
		-o cache_dir=$(CURDIR)/.pytest_cache $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

check: lint types test test-lossless

# Five at a time: these wait even more.
slow: $(INSTALLED) $(REAL_KAFKA)
	$(BIN)/python -m pytest --redis-server -m '(slow or hypothesis) and not chaos' --hypothesis-profile=full \
		--numprocesses 5 --dist worksteal \
		--timeout=900 -o faulthandler_timeout=890 $(DURATIONS) $(ARGS)

# Three at a time: most of a run waits for what was killed to be back.
# CHAOS_SEED and CHAOS_MINUTES choose another schedule of faults and a longer one: docs/contributors/chaos.md.
chaos: $(INSTALLED) $(REAL_KAFKA)
	$(BIN)/python -m pytest --redis-server -m chaos --numprocesses 3 --dist worksteal \
		--timeout=900 -o faulthandler_timeout=890 $(DURATIONS) tests/chaos $(ARGS)

# The dead-letter desk's own, of them.
chaos-desk: $(INSTALLED) $(REAL_KAFKA)
	$(BIN)/python -m pytest --redis-server -m chaos --timeout=900 -o faulthandler_timeout=890 tests/chaos/test_desk.py $(ARGS)

compose-test: $(INSTALLED)
	$(BIN)/python -m pytest -p pytest_celery.plugin -p pytest_docker_tools.plugin -m compose --timeout=900 -o faulthandler_timeout=890 tests/compose $(ARGS)

bench: $(INSTALLED) $(REAL_KAFKA)
	$(BIN)/python -m benchmarks $(ARGS)

kafka: $(KAFKA)

apicurio: $(APICURIO)

foreign: $(FOREIGN)

newer-servers: $(NEWER)

house: $(INSTALLED)
	$(BIN)/python -m tests.house

screenshots: $(INSTALLED) $(REAL_KAFKA)
	SCREENSHOTS=docs/images $(BIN)/python -m pytest -m 'servers and slow' tests/browser/test_screenshots.py $(ARGS)

openapi: $(INSTALLED)
	$(BIN)/python -c 'import json; from bridge.console.api import api_endpoint, openapi; \
		print(json.dumps(openapi.describe_api(api_endpoint.OPERATIONS), indent=1, ensure_ascii=False))' > docs/reference/openapi.json

reference: $(INSTALLED)
	$(BIN)/python -m tests.reference_pages

# Debian has no Helm. .ci/run builds it in the background.
$(HELM):
	@command -v go >/dev/null || { echo 'Go is needed to build Helm (on Debian: apt install golang).' >&2; exit 1; }
	GOBIN=$(CURDIR)/build/helm/built go install helm.sh/helm/v3/cmd/helm@v3.22.0
	mv build/helm/built/helm $@

helm: $(HELM)

manifests: $(INSTALLED)
	$(BIN)/python -m tests.manifests

$(SITE)/venv/.installed: requirements-docs.lock
	@test -n "$(PYTHON)" || { echo 'No Python 3.11 or newer with venv was found.' >&2; exit 1; }
	rm -rf $(SITE)/venv
	$(PYTHON) -m venv $(SITE)/venv
	$(SITE)/venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	touch $@

# The pages lie in the site as in the repository, beside the sources that they link to: so each link leads to the same.
docs: $(SITE)/venv/.installed
	rm -rf $(SITE)/pages $(SITE)/site
	mkdir -p $(SITE)/pages
	tar -cf - --exclude=__pycache__ *.md LICENSE benchmarks/README.md lossless/README.md docs $$(grep -rhoE '\]\((\.\./)+[^)# ]+' --include='*.md' docs \
		| sed -E 's|^\]\((\.\./)+||' | sort -u | xargs ls -d 2>/dev/null) | tar -xf - -C $(SITE)/pages
	$(SITE)/venv/bin/zensical build --strict --clean

$(DIST)/venv/.installed: requirements-dist.lock
	rm -rf $(DIST)/venv
	$(PYTHON) -m venv $(DIST)/venv
	$(DIST)/venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dist.lock
	touch $@

# From a copy: setuptools leaves what it makes beside its source. The wheel is built from the sdist, which so has all that it
# needs. Its SBOM names what the image's lock file pins; the image's build takes it from here.
dist: $(DIST)/venv/.installed
	rm -rf $(DIST)/source dist
	mkdir -p $(DIST)/source dist
	tar -chf - --exclude=__pycache__ --exclude='*.egg-info' --exclude=lossless/build pyproject.toml setup.py MANIFEST.in README.md \
		LICENSE bridge lossless tasks examples | tar -xf - -C $(DIST)/source
	$(DIST)/venv/bin/python -W ignore -m cyclonedx_py requirements requirements-image.lock --pyproject pyproject.toml --short-PURLs \
		--output-reproducible --validate --output-file sbom.cdx.json
	cp sbom.cdx.json $(DIST)/source
	$(DIST)/venv/bin/python -W ignore -m build --no-isolation --outdir dist $(DIST)/source > $(DIST)/log || { cat $(DIST)/log; exit 1; }
	$(DIST)/venv/bin/twine check --strict dist/*

smoke: $(INSTALLED)
	sh tests/wheel_smoke.sh $(BIN)/uv $(DIST)/smoke

# Every extra and the development tools; the image's lock is the part of it without the tools, that of `lossless` what it
# and its tests need. The site has one of its own.
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --upgrade \
	--generate-hashes --no-annotate --no-emit-index-url --no-header --quiet
lock: $(INSTALLED)
	$(LOCK) pyproject.toml --all-extras --group dev --output-file requirements.lock
	$(LOCK) pyproject.toml --all-extras --group build --constraints requirements.lock --output-file requirements-image.lock
	$(LOCK) lossless/pyproject.toml --group lossless/pyproject.toml:test --constraints requirements.lock \
		--output-file requirements-lossless.lock
	$(LOCK) --group docs --output-file requirements-docs.lock
	$(LOCK) --group dist --output-file requirements-dist.lock

clean:
	rm -rf .venv .kafka .newer .cache build dist *.egg-info lossless/build lossless/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
