"""`handle`: a function run under a handler of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, final

from attrs import field, frozen
from typing_extensions import ParamSpec, override

from tracefx.core.handler import CURRENT, Handler, Tracer
from tracefx.errors import EscapedTracerError
from tracefx.pytrees import trees
from tracefx.transforms.arguments import fun_name, require_callable
from tracefx.transforms.transform import HandlerTransform, Preserving
from tracefx.transforms.transformed_function import wrap_transformed

P = ParamSpec("P")
R = TypeVar("R")


@final
@frozen(eq=False)
class Handle(HandlerTransform[Preserving]):
    """`handle` as a value: what the function does is handled by `make` of the handler around it.

    >>> import tracefx as fx
    >>> from tracefx.testing.laws import Identity
    >>> pipeline = fx.Jit() @ Handle(Identity) @ fx.Grad()
    >>> float(pipeline(lambda x: x * x)(3.0))
    6.0
    """

    title: ClassVar[str] = "handle"
    make: Callable[[Handler], Handler] = field()

    @make.validator
    def _check_make(self, attribute: object, make: object) -> None:
        if not callable(make):
            raise TypeError(
                f"handle takes a function from handler to handler, such as the class of one, got {make!r}; a handler "
                "itself is put in force by `with handling(handler):`"
            )

    @override
    def over(self, handler: Handler, /) -> Handler:
        made = self.make(handler)
        if not isinstance(made, Handler):
            raise TypeError(f"handle: {self.make!r} must make a handler of a handler, but gave {made!r}")
        return made

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable("handle", fun)

        @wrap_transformed(self, fun)
        def handled(*args: Any, **kwargs: Any) -> Any:
            handler = self.over(CURRENT.get())
            token = CURRENT.set(handler)
            try:
                out = fun(*args, **kwargs)
            finally:
                CURRENT.reset(token)
            for x in trees.leaves(out):
                if isinstance(x, Tracer) and handler.owns(x):
                    raise EscapedTracerError(
                        f"handle: {fun_name(fun)} gave {x}, a value of {handler.title}'s own, which means nothing "
                        f"outside of it: run the function in `with handling({type(handler).__name__}(current())) as "
                        "h:` and take what you need of it by h.unwrap"
                    )
            return out

        return handled


def handle(fun: Callable[P, R], make: Callable[[Handler], Handler]) -> Callable[P, R]:
    """`fun`, every operation of which is handled by `make(handler)`, where `handler` is the one it is called under.

    `make` is a handler's class, or a function that makes one from the handler below it. Calls of jitted functions,
    loops and branches are entered by handlers that know how: all that inherit from `tracefx.extend.Interpreter`.

    Raises `EscapedTracerError` if `fun` gives a value of the handler's own.

    >>> import tracefx as fx
    >>> from tracefx.testing.laws import Identity
    >>> float(handle(lambda x: x + 1.0, Identity)(2.0))
    3.0
    """
    return Handle(make)(fun)
