// The picture of a group, which its owners and admins can change.

import { Camera, ImagePlus, Trash2 } from "lucide-react";
import { useRef, useState } from "react";
import type { Http } from "tierchat";
import { useClient } from "tierchat/react";
import { useAttempt } from "../data/use_attempt";
import { Avatar, MenuButton, showToast } from "../design";
import { useChatPicture } from "../directory/chat_picture";
import { useText } from "../i18n";
import styles from "./GroupPicture.module.css";

const PICTURES = "image/png,image/jpeg,image/gif,image/webp";

interface GroupPictureProps {
  info: Http.ChatInfo;
  name: string;
  /** True if the user may change it. */
  canChange: boolean;
}

/** The picture, or the initials of the name. */
export function GroupPicture({ info, name, canChange }: GroupPictureProps) {
  const text = useText().group;
  const client = useClient();
  const attempt = useAttempt();
  const file = useRef<HTMLInputElement>(null);
  const [isBusy, setBusy] = useState(false);
  const { chat, picture } = info;
  const url = useChatPicture(chat, picture);
  const change = async (next: File | null): Promise<void> => {
    setBusy(true);
    await attempt(async () => {
      const id = next === null ? "" : (await client.uploadPicture(next)).id;
      await client.chat(chat).update({ picture: id });
      showToast(text.saved);
    });
    setBusy(false);
  };
  const items = [
    { label: text.changePicture, icon: ImagePlus, onSelect: () => file.current?.click() },
    ...(picture == null
      ? []
      : [
          {
            label: text.removePicture,
            icon: Trash2,
            isDangerous: true,
            onSelect: () => void change(null),
          },
        ]),
  ];
  return (
    <div className={styles["picture"]} aria-busy={isBusy}>
      <Avatar id={chat} name={name} size="xl" src={url} />
      {canChange && (
        <span className={styles["edit"]}>
          <MenuButton icon={Camera} label={text.picture} items={items} size="s" />
          <input
            ref={file}
            type="file"
            accept={PICTURES}
            hidden
            aria-label={text.changePicture}
            onChange={(event) => {
              const [chosen] = event.target.files ?? [];
              if (chosen !== undefined) void change(chosen);
              event.target.value = "";
            }}
          />
        </span>
      )}
    </div>
  );
}
