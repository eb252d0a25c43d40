"""The version of the handlers' code: what the environment says, else the distribution that the module belongs to."""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from bridge.settings import installed_versions as subject
from bridge.settings.installed_versions import find_handlers_version


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path, as packages are installed in one."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    _forget()
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]
    _forget()


def _forget() -> None:
    subject._version_of.cache_clear()
    subject._owners.cache_clear()


def install(site: Path, name: str, version: str, *files: str, **metadata: str) -> None:
    """A distribution with these files, as pip leaves it."""
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).touch()
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for what, text in metadata.items():
        (folder / what.replace("_json", ".json")).write_text(text)


def version_of(module: str) -> str:
    import_module(module)
    return find_handlers_version(module, {})


def test_a_handlers_module_has_the_version_of_its_distribution(site: Path):
    install(site, "shop-orders", "2.7.1", "vt_shop/__init__.py", "vt_shop/handlers.py")
    assert version_of("vt_shop.handlers") == "2.7.1"


def test_the_environment_goes_before_it(site: Path):
    install(site, "shop-orders", "2.7.1", "vt_shop/__init__.py")
    assert find_handlers_version("vt_shop", {"KAFKA_HANDLERS_VERSION": " 2026-11-22 "}) == "2026-11-22"


def test_a_package_that_several_distributions_share_is_told_by_its_file(site: Path):
    install(site, "shop-orders", "1.0", "vt_space/orders.py")
    install(site, "shop-mails", "2.0", "vt_space/mails.py")
    assert (version_of("vt_space.orders"), version_of("vt_space.mails")) == ("1.0", "2.0")


def test_what_is_installed_from_a_folder_has_the_version_of_the_innermost(site: Path, tmp_path: Path):
    for name, version, folder in (("outer", "1", tmp_path / "a b"), ("inner", "2", tmp_path / "a b" / "inner")):
        folder.mkdir()
        said = {"url": folder.as_uri(), "dir_info": {"editable": True}}
        install(site, name, version, f"__editable__.{name}.pth", direct_url_json=json.dumps(said))
    (tmp_path / "a b" / "inner" / "vt_editable.py").touch()
    sys.path.insert(0, str(tmp_path / "a b" / "inner"))
    try:
        assert version_of("vt_editable") == "2"
    finally:
        sys.path.remove(str(tmp_path / "a b" / "inner"))


def test_what_was_installed_from_a_folder_and_is_no_more_of_it_counts_nothing(site: Path):
    install(site, "copied", "1", direct_url_json=json.dumps({"url": site.as_uri(), "dir_info": {}}))
    (site / "vt_plain.py").touch()
    assert version_of("vt_plain") == ""


def test_what_is_of_no_distribution_has_none(site: Path):
    (site / "vt_loose.py").touch()
    assert version_of("vt_loose") == ""
    assert find_handlers_version("json", {}) == ""
    assert find_handlers_version("vt_nowhere", {}) == ""


def test_metadata_that_is_broken_ends_nothing(site: Path):
    install(site, "broken", "1", direct_url_json="{")
    (site / "vt_beside.py").touch()
    assert version_of("vt_beside") == ""
