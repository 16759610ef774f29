"""Import rules: import-linter checks our folders, and a list here names the allowed libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture.source import (
    ROOT,
    SHIPPED,
    imports_of,
    module_name,
    path_of,
    project,
    python_files,
)

PYDANTIC = {"pydantic", "pydantic_core"}
BARE = PYDANTIC | {"cyclopts", "orjson", "rich", "yaml"}
"""Libraries that come without any extra."""
OURS = {"headrace", "tests"}
PURE = (
    "headrace.contracts",
    "headrace.services.operators",
    "headrace.services.group",
    "headrace.spark_jobs.versioned",
)
COMMAND_LINE = PYDANTIC | {"cyclopts", "rich"}
LIBRARIES: dict[str, set[str]] = {
    "headrace.contracts": PYDANTIC,
    "headrace.contracts.serde": PYDANTIC | {"orjson", "fastavro", "google"},
    "headrace.contracts.yaml_text": {"yaml"},
    "headrace": set(),
    "headrace.pipeline": PYDANTIC,
    "headrace.pytest_plugin": {"pytest"},
    "headrace.testing.strategies": {"hypothesis"},
    "headrace.testing.queries": PYDANTIC | {"pandas", "pyarrow", "pyspark", "sqlglot"},
    "headrace.services": set(),
    "headrace.services.cli": COMMAND_LINE,
    "headrace.services.observe": {"prometheus_client", "structlog"},
    "headrace.services.admin": {"aiokafka"},
    "headrace.services.kafka": {"aiokafka", "cramjam", "faust", "stamina"},
    "headrace.services.runtime": {"aiokafka", "faust", "mode", "structlog"},
    "headrace.services.settings": PYDANTIC | {"pydantic_settings"},
    "headrace.services.variables": {"pydantic", "pydantic_settings"},
    "headrace.services.state.rocks": {"rocksdict"},
    "headrace.spark_jobs": {"delta", "numpy", "pandas", "pyarrow", "pyspark"},
    "headrace.spark_jobs.jobs.rows": {"orjson", "pyarrow", "pyspark"},
    "headrace.spark_jobs.cli": COMMAND_LINE | {"py4j", "pyspark"},
    "headrace.spark_jobs.queries": PYDANTIC | {"pyarrow", "pyspark", "sqlglot"},
    "headrace.spark_jobs.jobs": PYDANTIC | {"pyarrow", "pyspark"},
    "headrace.spark_jobs.read": PYDANTIC | {"pyspark"},
    "headrace.spark_jobs.read.decode": {"pandas", "pyspark"},
    "headrace.spark_jobs.read.avro_columns": {"numpy", "pyarrow"},
    "headrace.spark_jobs.read.json_text": {"numpy", "orjson", "pyarrow", "pyspark"},
    "headrace.spark_jobs.read.registry": {"orjson", "pydantic"},
    "headrace.spark_jobs.read.parsed": {"pyarrow", "pyspark"},
    "headrace.spark_jobs.folder": {"py4j", "pyspark"},
    "headrace.spark_jobs.seams": {"py4j", "pyspark"},
    "headrace.spark_jobs.session": {"py4j", "pyspark"},
    "headrace.spark_jobs.observe": {"prometheus_client", "pyspark"},
    "headrace.spark_jobs.versioned": {"numpy", "pyarrow"},
    "headrace.spark_jobs.versioned.spread": {"numpy", "xxhash"},
    "headrace.spark_jobs.write.bundled": {"numpy", "pyarrow", "xxhash"},
    "headrace.spark_jobs.write.row_json": {"numpy", "orjson", "pyarrow"},
    "headrace.spark_jobs.write.row_avro": {"numpy", "pyarrow"},
    "headrace.spark_jobs.write": {"confluent_kafka", "delta", "py4j", "pyarrow", "pyspark"},
    "tests.oracles": set(),
}
"""The longest name that fits a module counts."""

WITHOUT_EXTRAS = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
sys.argv = ["headrace", "--help"]
from headrace.services.cli import main
main()
"""


def _allowed(module: str) -> set[str]:
    fitting = [name for name in LIBRARIES if f"{module}.".startswith(f"{name}.")]
    return LIBRARIES[max(fitting, key=len)]


def _foreign(file: Path) -> set[str]:
    imported = {name.partition(".")[0] for name in imports_of(file)}
    return imported - OURS - sys.stdlib_module_names


def test_folders_import_in_one_direction() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_pure_folder_is_in_the_contract_of_pure_code() -> None:
    rules = project()["tool"]["importlinter"]["contracts"]
    guarded = next(rule["source_modules"] for rule in rules if rule["name"].startswith("Pure code"))
    present = [
        name for name in PURE if (ROOT / "src" / name.replace(".", "/") / "__init__.py").exists()
    ]
    assert sorted(guarded) == sorted(present)


def test_libraries_are_imported_where_they_may_be() -> None:
    oracles = [
        file
        for file in python_files("tests")
        if "oracles" in file.parts and not file.name.startswith("test_")
    ]
    wrong = {
        path_of(file): sorted(_foreign(file) - _allowed(module_name(file)))
        for file in [*python_files(*SHIPPED), *oracles]
    }
    assert {path: names for path, names in wrong.items() if names} == {}


def test_the_command_starts_without_any_extra() -> None:
    extras = {name for names in LIBRARIES.values() for name in names} - BARE
    command = [sys.executable, "-c", WITHOUT_EXTRAS, ",".join(sorted(extras))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "plan" in done.stdout
