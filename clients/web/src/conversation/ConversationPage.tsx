// One chat: header, messages and composer.

import { Upload } from "lucide-react";
import { type DragEvent, lazy, Suspense, useEffect, useMemo, useState } from "react";
import { useChat, useClient, useConnection } from "tierchat/react";
import { useObservable } from "../data/observable";
import { Button } from "../design";
import { useChatTitle } from "../directory/chat_title";
import { type Catalog, useText } from "../i18n";
import { buildPath, navigate, type PageProps, useLocation } from "../page/router";
import { useOpenSession } from "../session/session_context";
import { AnotherChat } from "../share/AnotherChat";
import { ConversationHeader } from "./ConversationHeader";
import styles from "./ConversationPage.module.css";
import { Composer } from "./composer/Composer";
import composerStyles from "./composer/Composer.module.css";
import { useFiles } from "./composer/use_files";
import { JoinGroup } from "./JoinGroup";
import { MessageList } from "./messages/MessageList";
import { ConversationProvider, useConversation } from "./model/context";
import { ConversationModel, type OpenDialog } from "./model/conversation_model";
import { PinnedBar } from "./PinnedBar";
import { SelectionBar } from "./SelectionBar";

const Dialogs = lazy(() => import("./OpenDialogView"));

export default function ConversationPage({ params }: PageProps) {
  const chatId = params["chat"] ?? "";
  return <Conversation key={chatId} chatId={chatId} />;
}

function Conversation({ chatId }: { chatId: string }) {
  const client = useClient();
  const { query } = useLocation();
  const parsed = Number(query.get("seq"));
  const seq = Number.isSafeInteger(parsed) && parsed > 0 ? parsed : null;
  const model = useMemo(() => new ConversationModel(client, chatId), [client, chatId]);
  const [initialSeq] = useState(seq);
  useEffect(() => {
    model.start(initialSeq);
    return () => model.stop();
  }, [model, initialSeq]);
  useEffect(() => {
    // A later `seq`: the conversation stays open.
    if (seq !== null && seq !== initialSeq) void model.jumpTo(seq);
  }, [model, seq, initialSeq]);
  return (
    <ConversationProvider value={model}>
      <ConversationView />
    </ConversationProvider>
  );
}

function ConversationView() {
  const text = useText().conversation;
  const model = useConversation();
  const { config } = useOpenSession();
  const { isOnline } = useConnection();
  const chat = useChat(model.chat.id);
  const title = useChatTitle(chat);
  const files = useFiles(model, config.file_bytes_max);
  const selection = useObservable(model.selection);
  const dialog = useObservable(model.dialog);
  const error = useObservable(model.list).error as { code?: string } | null;
  const [isDropping, setDropping] = useState(false);
  useObservable(model.group.loaded);
  const closed = getClosedNotice(chat, model.group.isMuted, text);

  const isMissing = error !== null && ["not_found", "forbidden"].includes(error.code ?? "");
  if (isMissing && isOnline) {
    return <JoinGroup chat={model.chat.id} onJoin={() => void model.window.retry()} />;
  }
  const canDrop = (event: DragEvent): boolean =>
    closed === null && event.dataTransfer.types.includes("Files");
  return (
    <div
      className={styles["conversation"]}
      onDragEnter={(event) => setDropping(canDrop(event))}
      onDragOver={(event) => {
        if (canDrop(event)) event.preventDefault();
      }}
      onDragLeave={(event) => {
        const isInside = event.currentTarget.contains(event.relatedTarget as Node | null);
        if (!isInside) setDropping(false);
      }}
      onDrop={(event) => {
        setDropping(false);
        if (!canDrop(event)) return;
        event.preventDefault();
        files.add([...event.dataTransfer.files]);
      }}
    >
      <ConversationHeader />
      <PinnedBar />
      <MessageList isGroup={chat.kind === "group"} label={text.messagesWith(title)} />
      {selection !== null ? (
        <SelectionBar count={selection.size} />
      ) : closed !== null ? (
        <div className={composerStyles["notice"]} role="status">
          <p>{closed}</p>
          {chat.isEnded && <NewSession />}
          <AnotherChat chat={model.chat.id} />
        </div>
      ) : (
        <Composer files={files} />
      )}
      {isDropping && (
        <div className={styles["drop"]}>
          <Upload size={28} aria-hidden />
          {text.dropHere}
        </div>
      )}
      {dialog !== null && <OpenDialogs dialog={dialog} />}
    </div>
  );
}

function OpenDialogs({ dialog }: { dialog: OpenDialog }) {
  const model = useConversation();
  return (
    <Suspense fallback={null}>
      <Dialogs dialog={dialog} onClose={() => model.dialog.set(null)} />
    </Suspense>
  );
}

/** Opens the active session with the same companion, or starts one. */
function NewSession() {
  const text = useText().companions;
  const model = useConversation();
  const { client, companion } = model;
  const [isBusy, setBusy] = useState(false);
  if (companion === null) return null;
  const start = async (): Promise<void> => {
    setBusy(true);
    await model.attempt(async () => {
      const { id } = await client.createSession(companion);
      navigate(buildPath("/chats/:chat", { chat: id }));
    });
    setBusy(false);
  };
  return (
    <Button variant="primary" isBusy={isBusy} onClick={() => void start()}>
      {text.startAnother}
    </Button>
  );
}

/** Return the reason why the user cannot send messages here, or null. */
function getClosedNotice(
  chat: ReturnType<typeof useChat>,
  isMuted: boolean,
  text: Catalog["conversation"],
): string | null {
  if (chat.isEnded) return text.ended;
  if (chat.isLeft) return text.left;
  return isMuted ? text.muted : null;
}
