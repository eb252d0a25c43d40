#!/bin/sh
# The wheel of dist/ without the repository, on each Python that is here: installed with the image's locked requirements, it
# runs the demo to its end on the servers that the demo brings along.
#   tests/wheel_smoke.sh UV FOLDER
set -eu
uv=$(realpath "$1") root=$PWD folder=$2
wheel=$(ls "$root"/dist/celery_kafka_bridge-*.whl)
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"
unset PYTHONPATH CELERY_CONFIG_MODULE HANDLERS

# Install the wheel for a Python, and run the demo; the log of what failed is shown.
try_wheel() {
  version=$1 python=$2 here="$PWD/python$1"
  if "$uv" venv --quiet --python "$python" "$here" \
    && "$uv" pip install --quiet --python "$here" --require-hashes --requirement "$root/requirements-image.lock" \
    && "$uv" pip install --quiet --python "$here" --no-deps "$wheel" \
    && "$uv" pip check --quiet --python "$here" \
    && test -f "$here"/lib/python*/site-packages/celery_kafka_bridge-*.dist-info/sboms/sbom.cdx.json \
    && "$here/bin/bridge" demo --once --records 12 > "$here.log" 2>&1; then
    echo "$("$here/bin/python" -V): the wheel runs"
  else
    echo "the wheel does not run on Python $version" >&2
    tail -40 "$here.log" >&2 2> /dev/null || true
    return 1
  fi
}

# Side by side: a demo waits most of its time.
tries=
for version in 3.11 3.12 3.13 3.14; do
  python=
  for candidate in "python$version" "$root/.newer/root/usr/bin/python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
    if "$candidate" -c 'import venv' 2> /dev/null; then python=$candidate && break; fi
  done
  if [ -z "$python" ]; then echo "Python $version: not here"; continue; fi
  try_wheel "$version" "$(command -v "$python")" &
  tries="$tries $!"
done
status=0
for try in $tries; do wait "$try" || status=1; done
exit "$status"
