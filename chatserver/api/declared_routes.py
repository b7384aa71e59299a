"""HTTP routes built from the declarations of requests (`chatserver.requests.operation.Route`).

The route of a request takes the fields of its frame from the path, and the others from the body or
the query. It charges what the frame costs, calls the same handler as a WebSocket frame, and returns
the reply without its type and id. A list is returned as a `Page`, whose cursor is valid only for
the same user and the same parameters.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from litestar import Request, route
from litestar.constants import RESERVED_KWARGS
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import NODEFAULT
from msgspec.structs import FieldInfo, fields

from chatserver.api.authorization import Actor, pay_for, user_or_key
from chatserver.api.paging import Cursor, Page, PageQuery
from chatserver.api.request_bodies import RefQuery, build_body_type, get_ref
from chatserver.container.storage import StorageContainer
from chatserver.domain.access.caller import CALLER
from chatserver.hot.users.token_buckets import TOO_MUCH
from chatserver.protocol import frames
from chatserver.protocol.request_costs import BASE
from chatserver.requests.operation import Operation, Route
from chatserver.requests.registry import list_operations

_PATH_FIELD = re.compile(r"{(\w+):\w+}")
_CONSTRAINTS = ("ge", "le", "pattern", "min_length", "max_length")
_JSON_BODY = typing.get_args(JSONBody)[1]
_LIMIT_DESCRIPTION = "maximum number of items"


def build_declared_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return the HTTP routes of all declared requests."""
    return [
        _DeclaredRoute(container, operation, operation.http).build()
        for operation in list_operations().values()
        if operation.http is not None
    ]


class _DeclaredRoute:
    """The route of one request."""

    def __init__(
        self, container: StorageContainer, operation: Operation[Any], declared: Route
    ) -> None:
        self._container = container
        self._operation = operation
        self._route = declared
        self._path_names = _PATH_FIELD.findall(declared.path)
        self._fields: dict[str, str] = {}  # fields of parameters with another name
        # A page frame has `next`, and one list: the items.
        reply = operation.replies[0]
        hints = typing.get_type_hints(reply, include_extras=True)
        lists = [name for name, kind in hints.items() if _is_list(kind)]
        self._items = lists[0] if lists else ""
        self._is_page = declared.result is None and "next" in hints
        self._result_type = self._find_result_type(hints)

    def build(self) -> HTTPRouteHandler:
        declared, operation = self._route, self._operation
        opt: dict[str, Any] = {"rule": user_or_key(declared.scope), "errors": declared.errors}
        opt["cost"] = operation.cost if isinstance(operation.cost, int) else BASE
        if operation.memory is not None:
            opt["is_memory_declared"] = True
        if declared.creates:
            opt["creates"] = True
        if operation.is_protective:
            opt["protects"] = True
        return route(
            declared.path, http_method=declared.method, status_code=declared.status, opt=opt
        )(self._make_function())

    def _make_function(self) -> Callable[..., Any]:
        """Return the function of the route, with the signature that the framework reads."""

        async def handle(**arguments: Any) -> Any:
            return await self._handle(arguments)

        handler = self._operation.handler
        assert handler is not None, "a session frame has no route"
        shared = self._operation.name if self._route.summary else handler.__name__
        handle.__name__ = self._route.name or shared
        handle.__doc__ = self._route.summary or handler.__doc__
        parameters = self._list_parameters()
        handle.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # `inspect.signature` reads it
            parameters, return_annotation=self._result_type
        )
        handle.__annotations__ = {each.name: each.annotation for each in parameters}
        handle.__annotations__["return"] = self._result_type
        return handle

    def _list_parameters(self) -> list[inspect.Parameter]:
        given: dict[str, tuple[Any, Any]] = {}
        for field in sorted(self._list_fields(), key=self._get_order):
            name = field.name
            if name in self._path_names:
                kind, constraints, _ = _split_type(field.type)
                given[name] = (Annotated[kind, PathParameter(**constraints)], NODEFAULT)
            elif self._route.body:
                continue
            elif name == "ref":
                given[name] = (RefQuery, None)
            elif name == "after" and self._is_page:
                given["cursor"] = (Cursor, None)
            else:
                own = f"{name}_" if name in RESERVED_KWARGS else name
                self._fields[own] = name
                default = () if field.default_factory is not NODEFAULT else field.default
                given[own] = (self._make_query_type(field), default)
        if self._route.body:
            frame, names = self._operation.frame, self._path_names
            body: Any = build_body_type(self._route.body, frame, *names)
            given["data"] = (Annotated[body, _JSON_BODY], NODEFAULT)
        given["actor"] = (Actor, NODEFAULT)
        given["request"] = (Request[Any, Any, Any], NODEFAULT)
        return [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=annotation,
                default=inspect.Parameter.empty if default is NODEFAULT else default,
            )
            for name, (annotation, default) in given.items()
        ]

    def _list_fields(self) -> list[FieldInfo]:
        return [field for field in fields(self._operation.frame) if field.name != "id"]

    def _get_order(self, field: FieldInfo) -> int:
        """Return the position of a parameter in the OpenAPI document: the common ones are last."""
        last = ("limit", "after", "ref") if self._is_page else ("limit", "ref")
        return last.index(field.name) if field.name in last else -1

    def _make_query_type(self, field: FieldInfo) -> Any:
        kind, constraints, is_optional = _split_type(field.type)
        description = self._route.descriptions.get(field.name)
        if field.name == "limit":
            description = description or _LIMIT_DESCRIPTION
        if field.encode_name != field.name:
            constraints["name"] = field.encode_name
        parameter = QueryParameter(required=False, description=description, **constraints)
        return Annotated[kind | None if is_optional else kind, parameter]

    def _find_result_type(self, hints: Mapping[str, Any]) -> Any:
        result = self._route.result
        if isinstance(result, str):
            return _split_type(hints[result])[0]
        if result is not None:
            return result
        if not self._is_page:
            return None
        item = frames.find_raw_item(hints[self._items])
        if item is None:
            (item,) = typing.get_args(hints[self._items])
        page: Any = Page
        return page[item]

    async def _handle(self, arguments: dict[str, Any]) -> Any:
        operation, container = self._operation, self._container
        user, http_request = arguments.pop("actor"), arguments.pop("request")
        body = arguments.pop("data", None)
        arguments = {self._fields.get(name, name): value for name, value in arguments.items()}
        if body is not None:
            arguments |= {name: getattr(body, name) for name in body.__struct_fields__}
        if "ref" in arguments:
            arguments["ref"] = get_ref(arguments["ref"], http_request)
        page: PageQuery | None = None
        if self._is_page:
            arguments["after"] = arguments.pop("cursor")
            if not self._route.has_signed_cursor:
                page = self._make_page(user, arguments)
                arguments["after"] = page.open(str)
        frame = operation.frame(id=0, **arguments)
        await self._charge(frame, len(await http_request.body()))
        assert operation.handler is not None
        reply: Any = await operation.handler(container, user, frame)
        if operation.charge is not None:
            container.limits.charge_memory(user, operation.charge(frame, reply))
        return self._convert(reply, page)

    async def _charge(self, frame: msgspec.Struct, size_bytes: int) -> None:
        """Charge what depends on the frame; the guard has charged the rest."""
        operation, limits, caller = self._operation, self._container.limits, CALLER.get()
        if memory := operation.compute_memory(frame, size_bytes):
            allowance = limits.find_for_caller("memory", caller)
            if not (operation.is_protective and allowance.owe(memory)):
                await allowance.pay(TOO_MUCH, memory)
        if not isinstance(operation.cost, int):
            await pay_for(limits, caller, frame)

    def _make_page(self, user: str, arguments: Mapping[str, Any]) -> PageQuery:
        filters = {k: v for k, v in arguments.items() if k not in ("limit", "after")}
        return PageQuery(
            cursors=self._container.cursors,
            scope=f"{self._operation.name} of {user}: {filters}",
            limit=arguments["limit"],
            cursor=arguments["after"],
        )

    def _convert(self, reply: Any, page: PageQuery | None) -> Any:
        result = self._route.result
        if self._is_page:
            items = getattr(reply, self._items)
            return page.build(items, reply.next) if page else Page(items, reply.next)
        if result is None:
            return None
        if isinstance(result, str):
            return getattr(reply, result)
        return result(**{name: getattr(reply, name) for name in result.__struct_fields__})


def _is_list(annotation: Any) -> bool:
    return typing.get_origin(_split_type(annotation)[0]) is list


def _split_type(annotation: Any) -> tuple[Any, dict[str, Any], bool]:
    """Return the type of a field, its constraints, and whether it may be None."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        (inner,) = (each for each in typing.get_args(annotation) if each is not type(None))
        return (*_split_type(inner)[:2], True)
    if typing.get_origin(annotation) is not Annotated:
        return annotation, {}, False
    kind, *metas = typing.get_args(annotation)
    constraints = {
        name: value
        for meta in metas
        for name in _CONSTRAINTS
        if (value := getattr(meta, name, None)) is not None
    }
    return kind, constraints, False
