// Forms for posts: a new post, and a dialog that edits a post.

import { ImagePlus, X } from "lucide-react";
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { type Http, newRef } from "tierchat";
import { useClient } from "tierchat/react";
import { tabStorage } from "../data/browser_storage";
import { useAction } from "../data/use_action";
import { Button, Dialog, IconButton, showToast } from "../design";
import { useText } from "../i18n";
import { ActionError } from "../page/Loadable";
import type { FeedPost } from "./feed";
import styles from "./PostEditor.module.css";

/** Maximum number of characters in a post on the server. */
export const POST_CHARS_MAX = 2_000;
const COUNT_SHOWN_MAX = 200;
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** The selected picture: a new file, or the id of the post's current picture. */
type Picture = { file: File; url: string } | { id: string } | null;

interface FieldsProps {
  content: string;
  picture: Picture;
  isBusy: boolean;
  onContent: (content: string) => void;
  onPicture: (picture: Picture) => void;
  onSubmit: () => void;
  isFocused?: boolean;
}

function Fields(props: FieldsProps) {
  const { content, picture, isBusy, onContent, onPicture, onSubmit, isFocused = false } = props;
  const text = useText().social;
  const id = useId();
  const [isWrongType, setWrongType] = useState(false);
  const file = useRef<HTMLInputElement>(null);
  const remaining = POST_CHARS_MAX - [...content].length;
  const selectFile = (selected: File | undefined): void => {
    if (selected === undefined) return;
    setWrongType(!PICTURES.includes(selected.type));
    if (PICTURES.includes(selected.type)) {
      onPicture({ file: selected, url: URL.createObjectURL(selected) });
    }
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    onSubmit();
  };
  return (
    <>
      <label htmlFor={id} className="visually-hidden">
        {text.newPost}
      </label>
      <textarea
        id={id}
        className={styles["text"]}
        rows={2}
        maxLength={POST_CHARS_MAX * 2} // in UTF-16 units; the server counts characters
        placeholder={text.newPostHint}
        dir={content === "" ? undefined : "auto"}
        autoFocus={isFocused}
        value={content}
        onChange={(event) => onContent(event.target.value)}
        onKeyDown={onKeyDown}
        onPaste={(event) => selectFile([...event.clipboardData.files].find(isPicture))}
      />
      {picture !== null && "url" in picture && (
        <div className={styles["picture"]}>
          <img src={picture.url} alt={picture.file.name} />
          <IconButton
            icon={X}
            label={text.removePicture}
            size="s"
            className={styles["remove"]}
            onClick={() => onPicture(null)}
          />
        </div>
      )}
      {picture !== null && "id" in picture && (
        <Button icon={X} variant="quiet" onClick={() => onPicture(null)}>
          {text.removePicture}
        </Button>
      )}
      {isWrongType && <ActionError error={text.pictureOnly} />}
      <div className={styles["tools"]}>
        <input
          ref={file}
          type="file"
          accept={PICTURES.join(",")}
          hidden
          aria-label={text.addPicture}
          onChange={(event) => {
            selectFile(event.target.files?.[0]);
            event.target.value = "";
          }}
        />
        <IconButton
          icon={ImagePlus}
          label={text.addPicture}
          disabled={isBusy}
          onClick={() => file.current?.click()}
        />
        <span className={styles["left"]} data-over={remaining < 0} aria-live="polite">
          {remaining < COUNT_SHOWN_MAX ? text.charactersLeft(remaining) : ""}
        </span>
      </div>
    </>
  );
}

function isPicture(file: File): boolean {
  return PICTURES.includes(file.type);
}

const isSendable = (content: string): boolean =>
  content.trim() !== "" && [...content].length <= POST_CHARS_MAX;

/** Return the selected picture and its setter; release the memory of replaced pictures. */
function usePicture(initial: Picture): [Picture, (picture: Picture) => void] {
  const [picture, setPicture] = useState<Picture>(initial);
  useEffect(() => {
    if (picture === null || !("url" in picture)) return;
    return () => URL.revokeObjectURL(picture.url);
  }, [picture]);
  return [picture, setPicture];
}

const POST_DRAFT = "tierchat.postDraft"; // kept while another page is open

/** The form of a new post. Submitting the same post twice creates it once. */
export function NewPost({ onPosted }: { onPosted: (post: Http.PostInfo) => void }) {
  const text = useText().social;
  const client = useClient();
  const [content, setText] = useState(() => tabStorage.get(POST_DRAFT) ?? "");
  const setContent = (changed: string): void => {
    tabStorage.set(POST_DRAFT, changed);
    setText(changed);
  };
  const [picture, setPicture] = usePicture(null);
  const { isBusy, error, run } = useAction();
  const key = useRef<string | null>(null);

  const submit = async (): Promise<void> => {
    if (!isSendable(content)) return;
    const isDone = await run(async () => {
      key.current ??= newRef();
      const image =
        picture !== null && "file" in picture
          ? { image: (await client.uploadPicture(picture.file)).id }
          : {};
      onPosted(await client.http.call("create_post", { body: { content, ...image } }, key.current));
    });
    if (!isDone) return;
    key.current = null;
    setContent("");
    setPicture(null);
    showToast(text.posted);
  };
  return (
    <form
      className={styles["form"]}
      aria-label={text.newPost}
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <Fields
        {...{ content, picture, isBusy }}
        onContent={(changed) => {
          key.current = null;
          setContent(changed);
        }}
        onPicture={(changed) => {
          key.current = null;
          setPicture(changed);
        }}
        onSubmit={() => void submit()}
      />
      <Button
        type="submit"
        variant="primary"
        isBusy={isBusy}
        disabled={!isSendable(content)}
        className={styles["submit"]}
      >
        {text.post}
      </Button>
      <ActionError error={error} />
    </form>
  );
}

interface PostEditorProps {
  post: FeedPost;
  onClose: () => void;
  onSaved: (post: Http.PostInfo) => void;
}

/** The dialog that edits a post. */
export function PostEditor({ post, onClose, onSaved }: PostEditorProps) {
  const catalog = useText();
  const client = useClient();
  const [content, setContent] = useState(post.content);
  const [picture, setPicture] = usePicture(post.image === null ? null : { id: post.image });
  const { isBusy, error, run } = useAction();

  const submit = async (): Promise<void> => {
    if (!isSendable(content)) return;
    const isDone = await run(async () => {
      const image =
        picture === null
          ? null
          : "id" in picture
            ? picture.id
            : (await client.uploadPicture(picture.file)).id;
      const body = { content, ...(image === post.image ? {} : { image }) };
      onSaved(await client.http.call("edit_post", { post: post.id, body }));
    });
    if (isDone) onClose();
  };
  return (
    <Dialog
      title={catalog.social.editTitle}
      size="m"
      asksToDiscard
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{catalog.common.cancel}</Button>
          <Button
            variant="primary"
            isBusy={isBusy}
            disabled={!isSendable(content)}
            onClick={() => void submit()}
          >
            {catalog.common.save}
          </Button>
        </>
      }
    >
      <Fields
        {...{ content, picture, isBusy }}
        isFocused
        onContent={setContent}
        onPicture={setPicture}
        onSubmit={() => void submit()}
      />
      <ActionError error={error} />
    </Dialog>
  );
}
