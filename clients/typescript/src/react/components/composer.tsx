// The field for a new message.

import type { FormEvent, KeyboardEvent, ReactElement } from "react";

import type { Draft } from "../../client/chat.js";
import { useDraft, useSendTyping } from "../hooks.js";
import { useClient, useTexts } from "../provider.js";
import { useUpload } from "../uploads.js";
import { ReplyView } from "./reply_view.js";

/** Properties of {@link Composer}. */
export interface ComposerProps {
  chat: string;
  /** Seq of the message to reply to. */
  replyTo?: number | null;
  /** Allow files; needs `apiUrl`. */
  canAttach?: boolean;
  /** Called with each message that is sent or queued. */
  onSend?: (draft: Draft) => void;
}

/**
 * A text field with a draft, files and a button. Enter sends; Shift+Enter adds a new line.
 *
 * Class: `tierchat-composer`.
 */
export function Composer(props: ComposerProps): ReactElement {
  const { chat: id, replyTo = null, canAttach = false, onSend } = props;
  const client = useClient();
  const { labels } = useTexts();
  const [text, setText] = useDraft(id);
  const sendTyping = useSendTyping(id);
  const { uploads, isUploading, add, popAttachments } = useUpload(id);

  const send = (): void => {
    const attachments = isUploading ? [] : popAttachments();
    if (isUploading || (text.trim() === "" && attachments.length === 0)) return;
    const draft: Draft = { body: text, attachments };
    if (replyTo !== null) draft.replyTo = replyTo;
    client.chat(id).send(draft);
    setText("");
    sendTyping(false);
    onSend?.(draft);
  };
  const onSubmit = (event: FormEvent): void => {
    event.preventDefault();
    send();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };
  return (
    <form className="tierchat-composer" onSubmit={onSubmit}>
      {replyTo !== null && <ReplyView chat={id} seq={replyTo} />}
      {uploads.map(({ id: number, name, share, error, remove, retry }) => (
        <div key={number} className="tierchat-upload" data-failed={error !== null || undefined}>
          <span>{name}</span>
          {error === null ? (
            <progress value={share} aria-label={name} />
          ) : (
            <>
              <small role="alert">{error.message}</small>
              <button type="button" onClick={retry}>
                {labels.retry}
              </button>
            </>
          )}
          <button type="button" onClick={remove}>
            {labels.remove}
          </button>
        </div>
      ))}
      <textarea
        aria-label={labels.message}
        placeholder={labels.message}
        rows={1}
        value={text}
        onKeyDown={onKeyDown}
        onChange={({ target }) => {
          setText(target.value);
          sendTyping(target.value !== "");
        }}
      />
      {canAttach && (
        <input
          type="file"
          multiple
          aria-label={labels.attach}
          onChange={({ target }) => {
            add(target.files ?? []);
            target.value = "";
          }}
        />
      )}
      <button type="submit" disabled={isUploading}>
        {labels.send}
      </button>
    </form>
  );
}
