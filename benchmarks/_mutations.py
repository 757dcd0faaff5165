"""Small faults, put into source code one at a time: what a test must notice."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_SWAPPED = {
    a: b
    for pair in (
        ("min", "max"),
        ("minimum", "maximum"),
        ("any", "all"),
        ("ones", "zeros"),
        ("dilate", "erode"),
    )
    for a, b in (pair, pair[::-1])
} | {"mean": "sum", "sum": "mean", "log1p": "log", "abs": "negative", "cumsum": "asarray"}
# They change how an object prints, or only check what holds anyway.
_IGNORED_KEYWORDS = frozenset({"repr", "strict", "frozen", "dtype", "default_factory"})


@dataclass(frozen=True)
class Mutant:
    """A file with one fault in it.

    Attributes
    ----------
    file : str
        Below ``src/cpcapp/splicing``.
    line : int
    source : str
        The line as it is.
    change : str
        What was changed.
    code : str
        The whole file with the fault.
    """

    file: str
    line: int
    source: str
    change: str
    code: str


def mutants_of(file: str, code: str) -> list[Mutant]:
    """Return every mutant of a file, each of them once."""
    tree = ast.parse(code)
    lines = code.splitlines()
    unchanged = ast.unparse(tree)
    found: dict[str, Mutant] = {}
    for number, node in enumerate(_places(tree)):
        for option, (change, _) in enumerate(_replacements(node, tree)):
            other = copy.deepcopy(tree)
            target = list(_places(other))[number]
            replacement = list(_replacements(target, other))[option][1]
            text = ast.unparse(
                ast.fix_missing_locations(_Replace(target, replacement).visit(other))
            )
            line = node.lineno
            if text != unchanged and text not in found:
                found[text] = Mutant(file, line, lines[line - 1].strip(), change, text)
    return list(found.values())


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, replacement: ast.AST) -> None:
        self._target, self._replacement = target, replacement

    def visit(self, node: ast.AST) -> ast.AST:
        return self._replacement if node is self._target else self.generic_visit(node)


def _places(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the nodes in which a fault makes sense: no texts, types, messages or names."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _ignored(child, node):
                continue
            if isinstance(child, (ast.expr, ast.stmt)):
                yield child
            yield from _places(child)


def _ignored(node: ast.AST, parent: ast.AST) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.JoinedStr)):
        return True
    if isinstance(node, ast.keyword):
        return node.arg in _IGNORED_KEYWORDS
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    # Ranges of settings: tables of names and bounds that a check goes through.
    return (
        isinstance(parent, ast.For)
        and node is parent.iter
        and isinstance(node, ast.Tuple)
        and all(isinstance(row, ast.Tuple) for row in node.elts)
        and any(isinstance(child, ast.Raise) for child in ast.walk(parent))
    )


def _replacements(
    node: ast.expr | ast.stmt, tree: ast.AST
) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Yield what a node may become, each with words for it."""
    before = ast.unparse(node)
    for after in (*_of_expression(node), *_of_statement(node, tree)):
        text = ast.unparse(after)
        yield (f"removed: {before}" if text == "pass" else f"{before} -> {text}"), after


def _of_expression(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, ops, right):
            for number, operator in enumerate(ops):
                for other in _COMPARE[type(operator)]:
                    yield ast.Compare(left, [*ops[:number], other(), *ops[number + 1 :]], right)
        case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC:
            yield ast.BinOp(left, _ARITHMETIC[type(operator)](), right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(_, operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(float(value)):
            yield ast.Constant(2.0 * value if value else 1.0)
        case ast.Call(ast.Name(name) as called, args, keywords) if name in _SWAPPED:
            yield ast.Call(ast.copy_location(ast.Name(_SWAPPED[name]), called), args, keywords)
        case ast.Call(ast.Attribute(owner, name), args, keywords) if name in _SWAPPED:
            yield ast.Call(ast.Attribute(owner, _SWAPPED[name]), args, keywords)
        case ast.Slice(lower, upper, step):
            for part in (lower, upper, step):
                if part is not None:
                    kept = [None if part is p else p for p in (lower, upper, step)]
                    yield ast.Slice(*kept)
        case ast.IfExp(test, body, other):
            yield ast.IfExp(test, other, body)
        case ast.ListComp(element, [ast.comprehension(ifs=[_, *_])]):
            generator = copy.copy(node.generators[0])
            generator.ifs = []
            yield ast.ListComp(element, [generator])


def _of_statement(node: ast.AST, tree: ast.AST) -> Iterator[ast.stmt]:
    match node:
        case ast.AugAssign(target, operator, value):
            yield ast.Pass()
            if type(operator) in _ARITHMETIC:
                yield ast.AugAssign(target, _ARITHMETIC[type(operator)](), value)
        case ast.Expr(ast.Call()) | ast.Delete() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Assign([ast.Subscript()], _):
            yield ast.Pass()
        case ast.Assign([ast.Name(name)], _) if _known_before(name, node, tree):
            yield ast.Pass()
        case ast.If(test, body, other) if not isinstance(test, (ast.Compare, ast.UnaryOp)):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, other)
        case ast.Return(value) if value is not None and not (
            isinstance(value, ast.Constant) and value.value is None
        ):
            yield ast.Return(ast.Constant(None))


def _known_before(name: str, node: ast.stmt, tree: ast.AST) -> bool:
    """Return whether a function has a value for a name already, so that the line can go."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and node in ast.walk(function):
            arguments = function.args
            if name in {a.arg for a in (*arguments.args, *arguments.kwonlyargs)}:
                return True
            return any(
                isinstance(other, ast.Name)
                and isinstance(other.ctx, ast.Store)
                and other.id == name
                and other.lineno < node.lineno
                for other in ast.walk(function)
            )
    return False
