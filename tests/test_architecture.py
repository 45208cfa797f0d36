"""The house keeps its plan: imports go one way and never in a circle, files and functions stay short."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, BESIDE = "certiformer", "certiformer_reproduction"
SOURCES = {PACKAGE: ROOT / "src", BESIDE: ROOT / "reproduction"}
LINES, LENGTH, PARAMETERS = 500, 60, 10  # of a file, of a function, of a function's arguments

# what a part of the package may import besides itself; errors, version and how values are written are everybody's
EVERYBODY = {"named", "errors", "_version", "colours", "norms", "numbers", "strict", "text"}
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "_version": set(),
    "colours": set(),
    "norms": set(),
    "numbers": set(),
    "strict": set(),
    "text": set(),
    "__main__": {"cli"},
    "sets": set(),
    "properties": {"core", "sets"},
    "options": {"core", "sets", "properties"},
    "recipe": {"core"},
    "named": set(),
    "core": set(),
    "models": {"recipe", "core"},
    "certificate": {"core", "models"},
    "data": {"models"},
    "training": {"recipe", "data", "models", "core", "api"},
    "results": {"options", "core", "models"},
    "questions": {"sets", "properties", "options", "results", "core", "models", "attack", "certificate"},
    "attack": {"properties", "options", "results", "core", "models", "questions"},
    "api": {"sets", "properties", "options", "results", "core", "models", "questions", "attack"},
    "testing": {"options", "results", "questions", "api"},
    "textattack": {"options", "results", "models", "api"},
    "notebook": set(),
    "report": {"options", "results", "core", "models", "questions", "attack", "api"},
    "formats": {"sets", "properties", "options", "results", "core", "models", "questions", "api", "report"},
    "app": {"options", "core", "models", "questions", "api", "report"},
    "sweep": {"options", "results", "core", "models", "questions", "attack", "api", "report", "data"},
    "cli": {
        "app",
        "sweep",
        "properties",
        "sets",
        "formats",
        "recipe",
        "options",
        "results",
        "core",
        "models",
        "questions",
        "attack",
        "api",
        "report",
        "data",
        "training",
    },
    "": {"options", "results", "models", "questions", "attack", "api", "sweep"},  # the public names
}

# to be empty: what still breaks a rule
ALLOWED: set[str] = set()


@dataclass(frozen=True)
class Module:
    """A file of the source: its dotted name, and the modules it names in imports."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def part(self) -> str:
        """The folder or file below the package: `core`, `questions`, `api`."""
        return self.name.split(".")[1] if "." in self.name else ""


@cache
def modules() -> dict[str, Module]:
    found = {}
    for folder in SOURCES.values():
        for path in sorted(folder.glob(f"{PACKAGE}*/**/*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8")))
    return found


def imports(module: Module, *, lazy: bool) -> Iterator[str]:
    """The modules of ours that a module imports: at its start, and with `lazy` also inside functions and for types."""
    package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
    for node in ast.walk(module.tree) if lazy else statements(module.tree.body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in modules():
                    yield inner
                elif base in modules():
                    yield base


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What is run when a module is imported: not what is in functions, nor what only a type checker reads."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        for inner in ("body", "orelse", "finalbody"):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from statements(getattr(node, inner, []))


def functions(module: Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of a module under a name that is its own: `Class.method`, `outer.inner`."""

    def inside(node: ast.AST, above: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            name = f"{above}.{child.name}" if named else above  # type: ignore[attr-defined]
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield name, child
            yield from inside(child, name)

    yield from inside(module.tree, module.name)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many arguments a function takes, without `self` and `cls`."""
    args = function.args
    named = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return len(named) - (named[:1] in (["self"], ["cls"]))


def broken(found: dict[str, object]) -> dict[str, object]:
    """What breaks a rule and is not on the list."""
    return {name: value for name, value in found.items() if name not in ALLOWED}


def long_files() -> dict[str, object]:
    counts = {m.name: m.path.read_text(encoding="utf-8").count("\n") for m in modules().values()}
    return {name: count for name, count in counts.items() if count > LINES}


def long_functions() -> dict[str, object]:
    every = [(name, f) for module in modules().values() for name, f in functions(module)]
    lengths = {name: (f.end_lineno or f.lineno) - f.lineno + 1 for name, f in every}
    return {name: length for name, length in lengths.items() if length > LENGTH}


def wide_functions() -> dict[str, object]:
    every = [(name, f) for module in modules().values() for name, f in functions(module)]
    return {name: parameters(f) for name, f in every if parameters(f) > PARAMETERS}


def wrong_arrows() -> dict[str, object]:
    found: dict[str, object] = {}
    for module in modules().values():
        for target in sorted(set(imports(module, lazy=True))):
            there = modules()[target]
            if module.name.startswith(BESIDE) or module.part == there.part or target == PACKAGE == module.name:
                continue
            beside = target.startswith(BESIDE)
            if beside or there.part not in ARROWS.get(module.part, set()) | EVERYBODY:
                found[f"{module.name} -> {target}"] = "not in the plan"
    return found


def circles() -> list[list[str]]:
    """Modules that import each other in a circle, as they are loaded."""
    ahead = {name: sorted({t for t in imports(m, lazy=False) if t != name}) for name, m in modules().items()}
    found: list[list[str]] = []
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> None:
        if name in path:
            found.append([*path[path.index(name) :], name])
        elif name not in done:
            for target in ahead[name]:
                walk(target, [*path, name])
            done.add(name)

    for name in ahead:
        walk(name, [])
    return found


def test_files_are_short_enough_to_read_in_one_sitting() -> None:
    assert broken(long_files()) == {}


def test_functions_are_short() -> None:
    assert broken(long_functions()) == {}


def test_functions_take_few_arguments() -> None:
    assert broken(wide_functions()) == {}


def test_imports_follow_the_arrows_of_the_plan() -> None:
    assert broken(wrong_arrows()) == {}


def test_every_part_of_the_package_has_its_place_in_the_plan() -> None:
    assert {m.part for m in modules().values() if not m.name.startswith(BESIDE)} <= set(ARROWS)


def test_no_module_imports_itself_by_a_detour() -> None:
    assert circles() == []
