"""Connection of a terminal conversation: runs a `ChatClient` and applies its events."""

from __future__ import annotations

import asyncio
import enum
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from chatserver.client import events
from chatserver.client.cache.sqlite_store import SqliteStore
from chatserver.client.calls import SearchResult
from chatserver.client.client import NO_GATEWAY, ChatClient, GetToken
from chatserver.client.model import Bounds
from chatserver.client.terminal import commands
from chatserver.client.terminal.commands import Command, HelpText
from chatserver.client.terminal.conversation import Conversation
from chatserver.domain.ids import UserId, direct_chat_id
from chatserver.domain.quantities import format_count
from chatserver.errors import ChatError, Unavailable

PAGE = 50
RESULTS_MAX = 10  # maximum number of results that a search shows
SEARCH_PAGES_MAX = 3  # maximum pages read per search; even a short page can have a next page
RETRY_S = 1.0
MESSAGES_MAX = 5_000


class State(enum.Enum):
    CONNECTING = "connecting"
    ONLINE = "online"
    OFFLINE = "offline"


class ResultLine(msgspec.Struct, frozen=True):
    """A search result. `chat` is the chat's display name; `snippet` is as in `SearchResult`."""

    ts: int
    chat: str
    sender: str
    snippet: list[tuple[str, bool]]


class SearchReport(msgspec.Struct, frozen=True):
    """Results of `/search`, newest first. `has_more`: there are more results.

    `problem`: why the search failed, or empty.
    """

    query: str
    lines: list[ResultLine]
    has_more: bool = False
    problem: str = ""

    @property
    def heading(self) -> str:
        if self.problem:
            return f"search {self.query}: {self.problem}"
        total = format_count(len(self.lines), "message")
        return f"search {self.query}: {total}{', there are more' * self.has_more}"


class ConversationLink:
    """The connection of one conversation. `on_change` is called after each visible change.

    With a `store`, a chat in the store opens without a connection.
    """

    def __init__(
        self,
        *,
        url: str,
        get_token: GetToken,
        conversation: Conversation,
        on_change: Callable[[], None],
        api_url: str | None = None,
        store: SqliteStore | None = None,
    ) -> None:
        self.conversation = conversation
        self.state = State.CONNECTING
        self.note = ""
        self._url = url
        self._on_change = on_change
        self._client = ChatClient(
            url,
            get_token,
            device=None if store else f"terminal-{secrets.token_hex(6)}",
            store=store,
            is_offline_first=store is not None,
            bounds=Bounds(entries_max=MESSAGES_MAX),
            is_patient=False,
            api_url=api_url,
        )
        self.uploads = 0  # number of uploads in progress
        self.searches = 0  # number of searches in progress
        self.report: SearchReport | HelpText | None = None
        self._is_open = asyncio.Event()  # set when the chat is loaded
        self._marked = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Stay connected until cancelled.

        Raises:
            ChatError: the token, the address or the peer is rejected, or the first connection
                failed.
        """
        try:
            async with self._client, asyncio.TaskGroup() as group:
                group.create_task(self._listen(), name="events")
                group.create_task(self._open_chat(), name="open chat")
        except* ChatError as group_of_errors:
            raise self._add_hint(group_of_errors.exceptions[0]) from None
        finally:
            for task in self._tasks:
                task.cancel()

    def _add_hint(self, error: BaseException) -> BaseException:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, Unavailable) and error.message.startswith(NO_GATEWAY):
            hint = "Start one with `chatserver dev`, or set another address with --url"
            return Unavailable(f"{error.message}. {hint}")
        return error

    def handle_line(self, line: str) -> bool:
        """Send a message now, or as soon as the client is connected; or run a command.

        ``/search`` and ``/help`` set `report`, which the next line resets. Return False if the
        user leaves.
        """
        self.report = None
        match commands.parse_line(line):
            case Command(commands.QUIT):
                return False
            case Command(commands.FILE, path):
                self.uploads += 1
                self._spawn(self._send_file(path), "upload")
            case Command(_, query):
                self.searches += 1
                self._spawn(self._search(query), "search")
            case HelpText() as help_text:
                self.report = help_text
            case body if self.conversation.chat is None:
                self.conversation.add_draft(body)
            case body:
                self._send_text(body)
        self._on_change()
        return True

    def typing(self, *, is_on: bool) -> None:
        if self.state is State.ONLINE and self.conversation.chat is not None:
            self._client.typing(self.conversation.chat.id, is_on=is_on)

    def mark_read(self) -> None:
        chat, top = self.conversation.chat, self.conversation.top
        if self.state is State.ONLINE and chat is not None and top > self._marked:
            self._marked = top
            self._spawn(self._send_mark(chat.id, top), "mark")

    async def _send_mark(self, chat: str, upto: int) -> None:
        while upto == self._marked:  # stop after `mark_read` was called with a newer message
            try:
                await self._client.mark(chat, read=upto)
            except ChatError as exc:
                if not exc.temporary:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                break

    def load_older(self) -> None:
        """Load the history page before the oldest loaded message."""
        if self.state is State.ONLINE and self.conversation.has_older:
            # Prevents a second load of the same page; `apply_page` sets `has_older` again.
            self.conversation.has_older = False
            self._spawn(self._load_page(before=self.conversation.bottom), "older messages")

    async def _listen(self) -> None:
        async for event in self._client.events():
            self.conversation.apply_event(event)
            match event:
                case events.Connected():
                    self._set_state(
                        State.ONLINE if self.conversation.chat is not None else State.CONNECTING
                    )
                    if self.conversation.chat is not None:
                        self._spawn(self._load_marks(), "marks")
                case events.Disconnected(reason):
                    self.note = reason
                    self._set_state(State.OFFLINE)
                case events.Restarted():
                    self._marked = 0
                    self._spawn(self._load_marks(), "marks")
            self._on_change()

    async def _open_chat(self) -> None:
        """Open the chat, load its newest page, and send the drafts."""
        client = self._client
        while True:
            try:
                chat_id = direct_chat_id(UserId(client.user), UserId(self.conversation.peer))
                chat = client.find_chat(chat_id) or await client.open_direct(self.conversation.peer)
                page = await client.history(chat.id, limit=PAGE)
                await self._load_marks()
                break
            except Unavailable as exc:
                self.note = exc.message
                self._on_change()
                await asyncio.sleep((exc.retry_after_ms or 0) / 1000 or RETRY_S)
        drafts = self.conversation.set_chat(
            client.user, chat, lambda: client.pending_operations(chat.id)
        )
        self.conversation.apply_page(page)
        self._is_open.set()
        for body in drafts:
            self._send_text(body)
        self._set_state(State.ONLINE if client.is_online else State.OFFLINE)

    async def _load_page(self, before: int) -> None:
        assert self.conversation.chat is not None
        try:
            page = await self._client.history(self.conversation.chat.id, before=before, limit=PAGE)
        except ChatError:
            self.conversation.has_older = True
            raise
        self.conversation.apply_page(page)
        self._on_change()

    async def _load_marks(self) -> None:
        """Load the peer's read mark from the chat list; later changes arrive as events."""
        await self._client.chats()
        self._on_change()

    def _send_text(self, body: str) -> None:
        assert self.conversation.chat is not None
        try:
            self.conversation.record_sent(self._client.post(self.conversation.chat.id, body), body)
        except ChatError as exc:
            self.note = exc.message

    async def _send_file(self, path: str) -> None:
        try:
            if self.conversation.chat is None:
                raise Unavailable("not connected yet: send the file again")
            chat = self.conversation.chat.id
            self.note = f"uploading {path}"
            self._on_change()
            file = await self._client.upload(chat, path)
            self.conversation.record_sent(
                self._client.post(chat, "", attachments=[file]), file.name
            )
            self.note = ""
        finally:
            self.uploads -= 1
            self._on_change()

    async def _search(self, query: str) -> None:
        try:
            self.note = f"searching {query}"
            self._on_change()
            await self._is_open.wait()  # wait until the chat is loaded
            self.report = await self._collect_results(query)
        except ChatError as exc:
            self.report = SearchReport(query, [], problem=exc.message)
        finally:
            self.note = ""
            self.searches -= 1
            self._on_change()

    async def _collect_results(self, query: str) -> SearchReport:
        messages: list[SearchResult] = []
        after: str | None = None
        for _ in range(SEARCH_PAGES_MAX):
            limit = RESULTS_MAX - len(messages)
            page = await self._client.search(query, after=after, limit=limit)
            messages, after = [*messages, *page.results], page.next
            if after is None or len(messages) >= RESULTS_MAX:
                break
        return SearchReport(
            query, [self._build_line(message) for message in messages], after is not None
        )

    def _build_line(self, result: SearchResult) -> ResultLine:
        message = result.message
        cached = self._client.find_chat(message.chat)
        name = message.chat if cached is None else cached.name or cached.peer or cached.id
        return ResultLine(message.ts, name, message.sender, result.snippet)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(self._record_failure(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _record_failure(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ChatError as exc:
            self.note = exc.message
            self._on_change()

    def _set_state(self, state: State) -> None:
        self.state = state
        if state is State.ONLINE:
            self.note = ""
        self._on_change()


# Creates the link of a screen, which passes its `on_change`.
MakeLink = Callable[[Callable[[], None]], ConversationLink]


async def run_until_first_ends(*works: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until one ends; cancel the others. Raises the error of one that failed."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
