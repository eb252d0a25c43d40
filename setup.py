"""The wheel brings its SBOM along (PEP 770), if `make dist` has made one; all else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

SBOM = Path("sbom.cdx.json")


class WheelWithSbom(bdist_wheel):
    """The wheel, with the SBOM in `.dist-info/sboms`."""

    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        """Write the wheel's metadata folder."""
        super().egg2dist(egginfo_path, distinfo_path)
        if SBOM.exists():
            folder = Path(distinfo_path, "sboms")
            folder.mkdir()
            (folder / SBOM.name).write_bytes(SBOM.read_bytes())


setup(cmdclass={"bdist_wheel": WheelWithSbom})
