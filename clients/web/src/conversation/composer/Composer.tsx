// The composer: text with mentions and emoji, files, voice messages, replies and edits. A keystroke
// renders only this component, because it owns the text.

import { ArrowUp, Check, Mic, Paperclip, Smile } from "lucide-react";
import {
  type ClipboardEvent,
  type KeyboardEvent,
  memo,
  useCallback,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import { useSendTyping } from "tierchat/react";
import { cleanText } from "../../content/text_shape";
import { useObservable } from "../../data/observable";
import { IconButton } from "../../design";
import { isComposing, useLayer } from "../../design/use_layer";
import { useText } from "../../i18n";
import { EmojiPopover } from "../EmojiPopover";
import { useConversation } from "../model/context";
import { isUnsent } from "../model/unsent";
import styles from "./Composer.module.css";
import { DraftSaver } from "./draft_saver";
import { MentionList, useMentions } from "./MentionList";
import { TargetBar } from "./TargetBar";
import { UploadStrip } from "./UploadStrip";
import type { Files } from "./use_files";
import { useSharedContent } from "./use_shared_content";
import { canRecord, VoiceRecorder } from "./VoiceRecorder";

const TEXT_MAX = 4_000; // characters of a message
const HEIGHT_MAX = 240; // px

interface ComposerProps {
  files: Files;
}

export const Composer = memo(function Composer({ files }: ComposerProps) {
  const { conversation: words, common } = useText();
  const model = useConversation();
  const { chat } = model;
  const target = useObservable(model.target);
  useObservable(model.group.loaded);
  const { slowS } = model.group;
  const sendTyping = useSendTyping(chat.id);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const emojiButton = useRef<HTMLButtonElement>(null);
  const [draft] = useState(() => new DraftSaver(chat));
  const [text, setText] = useState(draft.text);
  const [isPicking, setPicking] = useState(false);
  const [isRecording, setRecording] = useState(false);
  const [isSendPending, setSendPending] = useState(false); // the message is sent after the upload
  const mentions = useMentions(field, text, change);
  const edited = target?.kind === "edit" ? target.message : null;

  function change(next: string, caret?: number): void {
    setText(next);
    if (edited === null) draft.set(next);
    sendTyping(next.trim() !== "");
    if (caret === undefined) return;
    requestAnimationFrame(() => field.current?.setSelectionRange(caret, caret));
  }

  useEffect(() => {
    const unsubscribe = draft.subscribe(model.client, (next) => {
      if (model.target.get()?.kind !== "edit") setText(next);
    });
    return () => {
      unsubscribe();
      draft.flush();
    };
  }, [draft, model]);
  useLayoutEffect(() => fitHeight(field.current), [text]);
  // An edit has a separate text; the draft returns after the edit.
  useEffect(() => {
    setText(edited === null ? draft.text : edited.body);
    if (target !== null) field.current?.focus();
  }, [target, edited, draft]);

  useSharedContent((shared) => {
    if (shared.text !== "") {
      draft.set([draft.text, shared.text].filter(Boolean).join("\n"));
      if (model.target.get()?.kind !== "edit") setText(draft.text);
    }
    files.add(shared.files);
    draft.flush();
  });

  const cleaned = cleanText(text);
  const surplus = cleaned.length > TEXT_MAX ? [...cleaned].length - TEXT_MAX : 0;
  const { uploads, isUploading } = files;
  const hasFailedUpload = uploads.some(({ error }) => error !== null);
  const hasContent = cleaned !== "" || (edited === null && uploads.length > 0);
  const canSend = hasContent && surplus <= 0 && (edited !== null || !hasFailedUpload);

  const submit = useCallback(() => {
    if (!canSend) return;
    if (edited === null && isUploading) {
      setSendPending(true);
      return;
    }
    if (edited !== null) {
      if (isUnsent(edited)) model.retry(edited.ref, cleaned);
      else if (cleaned !== edited.body) chat.edit(edited.seq, cleaned);
    } else {
      const replyTo = target?.kind === "reply" ? { replyTo: target.message.seq } : {};
      model.send({ body: cleaned, attachments: files.popAttachments(), ...replyTo });
      draft.clear();
      setText("");
    }
    model.target.set(null);
    sendTyping(false);
  }, [canSend, isUploading, edited, cleaned, chat, target, model, files, draft, sendTyping]);

  // Send the message after its files are uploaded. If an upload fails, the user decides.
  useEffect(() => {
    if (!isSendPending || isUploading || edited !== null) return;
    setSendPending(false);
    submit();
  }, [isSendPending, isUploading, edited, submit]);

  const onKeyDown = (event: KeyboardEvent<HTMLTextAreaElement>): void => {
    if (isComposing(event.nativeEvent) || mentions.onKeyDown(event)) return;
    if (event.key === "Enter" && !event.shiftKey && !isTouch()) {
      event.preventDefault();
      submit();
    } else if (event.key === "ArrowUp" && text === "" && target === null) {
      const ownRow = model.list
        .get()
        .rows.findLast(
          ({ isOwn, unsent, message }) => isOwn && unsent === null && message.body !== "",
        );
      if (ownRow === undefined) return;
      event.preventDefault();
      model.target.set({ kind: "edit", message: ownRow.message });
    }
  };
  useLayer(target === null ? null : () => model.target.set(null));
  const onPaste = (event: ClipboardEvent): void => {
    const pasted = [...event.clipboardData.files];
    if (pasted.length === 0 || edited !== null) return;
    event.preventDefault();
    files.add(pasted);
  };
  const insert = (emoji: string): void => {
    const element = field.current;
    const start = element?.selectionStart ?? text.length;
    const end = element?.selectionEnd ?? text.length;
    change(text.slice(0, start) + emoji + text.slice(end), start + emoji.length);
  };

  const isVoice = !hasContent && edited === null && canRecord();
  return (
    <div className={styles["composer"]}>
      {target !== null && <TargetBar target={target} />}
      {edited === null && <UploadStrip files={files} />}
      <p role="status" className={styles["waiting"]}>
        {isSendPending && (
          <>
            {words.waitsForFiles}
            <button type="button" onClick={() => setSendPending(false)}>
              {common.cancel}
            </button>
          </>
        )}
      </p>
      {mentions.isOpen && <MentionList {...mentions} />}
      {isRecording ? (
        <VoiceRecorder
          onEnd={(file) => {
            setRecording(false);
            if (file !== null) files.add([file], { isSentAlone: true });
          }}
        />
      ) : (
        <div className={styles["line"]}>
          {edited === null && (
            <>
              <input
                ref={picker}
                type="file"
                multiple
                hidden
                onChange={(event) => {
                  files.add([...(event.target.files ?? [])]);
                  event.target.value = "";
                }}
              />
              <IconButton
                icon={Paperclip}
                label={words.attach}
                onClick={() => picker.current?.click()}
              />
            </>
          )}
          <textarea
            ref={field}
            rows={1}
            dir={text === "" ? undefined : "auto"}
            className={styles["field"]}
            aria-label={words.write}
            placeholder={slowS > 0 ? words.slowMode(slowS) : words.placeholder}
            autoFocus={!isTouch()}
            value={text}
            enterKeyHint={isTouch() ? "enter" : "send"}
            {...mentions.fieldProps}
            onChange={(event) => {
              change(event.target.value);
              mentions.update(event.target.value, event.target.selectionStart);
            }}
            onSelect={({ currentTarget: { value, selectionStart } }) =>
              mentions.update(value, selectionStart)
            }
            onKeyDown={onKeyDown}
            onPaste={onPaste}
            onBlur={() => {
              sendTyping(false);
              draft.flush();
            }}
          />
          {surplus > 0 && (
            <span className={styles["surplus"]} role="alert">
              {words.textTooLong(surplus)}
            </span>
          )}
          <IconButton
            ref={emojiButton}
            icon={Smile}
            label={words.emoji}
            aria-haspopup="dialog"
            aria-expanded={isPicking}
            onClick={() => setPicking(!isPicking)}
          />
          {isVoice ? (
            <IconButton icon={Mic} label={words.record} onClick={() => setRecording(true)} />
          ) : (
            <IconButton
              icon={edited === null ? ArrowUp : Check}
              label={edited === null ? words.send : words.saveEdit}
              className={styles["send"]}
              disabled={!canSend}
              onClick={() => {
                submit();
                field.current?.focus();
              }}
            />
          )}
        </div>
      )}
      {isPicking && emojiButton.current !== null && (
        <EmojiPopover
          anchor={emojiButton.current}
          returnFocusTo={field.current}
          onPick={insert}
          onClose={() => setPicking(false)}
        />
      )}
    </div>
  );
});

/** Return whether the device has a touch keyboard, on which Enter starts a new line. */
function isTouch(): boolean {
  return matchMedia("(pointer: coarse)").matches;
}

/** Fit the height of the field to its text, for browsers that cannot do this with CSS. */
function fitHeight(field: HTMLTextAreaElement | null): void {
  if (field === null || CSS.supports("field-sizing", "content")) return;
  field.style.blockSize = "auto";
  field.style.blockSize = `${Math.min(field.scrollHeight, HEIGHT_MAX)}px`;
}
