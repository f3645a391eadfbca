"""`handle`: runs a function under a user-defined handler."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, final

from attrs import field, frozen
from typing_extensions import ParamSpec, override

from tracefx.core import Array
from tracefx.core.handler import CURRENT, Handler, Tracer, call_under
from tracefx.errors import EscapedTracerError
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.interpreter import Interpreter
from tracefx.pytrees import trees
from tracefx.transforms.arguments import fun_name, require_callable
from tracefx.transforms.transform import HandlerTransform, Preserving
from tracefx.transforms.transformed_function import wrap_transformed

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
H = TypeVar("H", bound=Interpreter[Any, Any, Any])


@final
@frozen(eq=False)
class Handle(HandlerTransform[Preserving]):
    """`handle` with its option, as a transformation value: the function runs under an interpreter or other handler.

    >>> import tracefx as fx
    >>> from tracefx.testing import IdentityHandler
    >>> pipeline = fx.Jit() @ Handle(IdentityHandler) @ fx.Grad()
    >>> float(pipeline(lambda x: x * x)(3.0))
    6.0
    """

    title: ClassVar[str] = "handle"
    make: Callable[[Handler], Handler] = field()

    @make.validator
    def _check_make(self, attribute: object, make: object) -> None:
        if not callable(make):
            raise TypeError(
                "handle: make must be an interpreter, a handler class or a function from handler to handler, got "
                f"{make!r}; to use an existing handler, write `with handling(handler):`"
            )
        if isinstance(make, type) and issubclass(make, Interpreter):
            raise TypeError(f"handle: make must be an interpreter, got its class: write {make.__name__}()")

    @override
    def over(self, handler: Handler, /) -> Handler:
        made = self.make(handler)
        if not isinstance(made, Handler):
            raise TypeError(f"handle: {self.make!r} must return a handler, but returned {made!r}")
        return made

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(fun, Interpreter):
            raise TypeError(f"handle takes a function and then an interpreter, got the interpreter {fun!r} first")
        require_callable("handle", fun)

        @wrap_transformed(self, fun)
        def handled(*args: Any, **kwargs: Any) -> Any:
            handler = self.over(CURRENT.get())
            out = call_under(handler, fun, *args, **kwargs)
            for x in trees.leaves(out):
                if isinstance(x, Tracer) and handler.owns(x):
                    raise EscapedTracerError(
                        f"handle: {fun_name(fun)} returned {x}, a tracer of {handler.title}, which has no meaning "
                        "outside of it: run the function in a `with` block (`with interpreter.running() as h:` or "
                        "`with handling(handler):`) and unwrap the results by h.unwrap"
                    )
            return out

        return handled


def handle(fun: Callable[P, R], make: Callable[[Handler], Handler]) -> Callable[P, R]:
    """Returns a function that runs `fun` under a user-defined handler, which interprets every operation of `fun`.

    Args:
        fun: The function to run. It may return pytrees of arrays, or anything else.
        make: A `tracefx.extend.Interpreter`, a handler class, or a function from a handler to a handler. It is called
            once per call of `fun`, with the current handler, which becomes the inner handler. Interpreters also
            interpret the bodies of jitted functions, loops and branches.

    Returns:
        A function with the signature of `fun`.

    Raises:
        TypeError: If `fun` or `make` is not callable or `make` is the class of an interpreter, or, when the result is
            called, if `make` does not return a handler.
        EscapedTracerError: When the result is called, if `fun` returns a tracer of the handler.

    >>> import tracefx as fx
    >>> from tracefx.testing import IdentityHandler
    >>> float(handle(lambda x: x + 1.0, IdentityHandler)(2.0))
    3.0
    """
    return Handle(make)(fun)


def handle_values(
    title: str,
    fun: Callable[P, R],
    interpreter: H,
    kind: type[T],
    own_value: Callable[[T], object],
    result: Callable[[H, Array], object],
) -> Callable[P, R]:
    """Returns a function that runs `fun` under an interpreter, whose own values stand for the arguments of a class.

    Args:
        title: The name of the transformation, for messages.
        fun: The function. Its arguments are pytrees, in which instances of `kind` are leaves.
        interpreter: The interpreter.
        kind: The class of the arguments that become own values.
        own_value: Converts such an argument to an own value or a plain value.
        result: Converts an array in the output of `fun`, given the running interpreter.
    """
    require_callable(title, fun)

    @api_boundary
    @functools.wraps(fun)
    def handled(*args: P.args, **kwargs: P.kwargs) -> R:
        with interpreter.running() as handler:
            wrapped: tuple[Any, Any] = trees.map(
                lambda x: handler.wrap(own_value(x)) if isinstance(x, kind) else x,
                (args, kwargs),
                is_leaf=lambda x: isinstance(x, kind),
            )
            out = fun(*wrapped[0], **wrapped[1])
        results: R = trees.map(lambda x: result(handler, x) if isinstance(x, Array) else x, out)
        return results

    return handled
