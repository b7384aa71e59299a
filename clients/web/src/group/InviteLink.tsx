// The link with which everyone can join an open group.

import { Copy, Link2 } from "lucide-react";
import { copyText } from "../data/clipboard";
import { Button, IconButton, showToast, TextField } from "../design";
import { getText, useText } from "../i18n";
import { buildPath } from "../page/router";

const buildLink = (chat: string): string =>
  new URL(buildPath("/chats/:chat", { chat }), location.origin).href;

async function copyLink(chat: string): Promise<void> {
  const { conversation, group } = getText();
  if (await copyText(buildLink(chat))) showToast(group.inviteLinkCopied);
  else showToast(conversation.copyFailed, { kind: "error" });
}

/** The link with a button that copies it. */
export function InviteLink({ chat }: { chat: string }) {
  const text = useText().group;
  return (
    <>
      <TextField
        label={text.inviteLink}
        hint={text.inviteLinkHint}
        value={buildLink(chat)}
        readOnly
        onFocus={(event) => event.target.select()}
      />
      <Button onClick={() => void copyLink(chat)}>
        <Copy size={18} aria-hidden />
        {text.copyInviteLink}
      </Button>
    </>
  );
}

/** A button that copies the link, for all members. */
export function InviteLinkButton({ chat }: { chat: string }) {
  const text = useText().group;
  const copy = (): void => void copyLink(chat);
  return <IconButton icon={Link2} label={text.copyInviteLink} onClick={copy} />;
}
