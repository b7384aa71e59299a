// The picture of a group.

import type { Http } from "tierchat";
import { Avatar } from "../design";

interface GroupPictureProps {
  info: Http.ChatInfo;
  name: string;
  /** Whether the user may change it. */
  canChange: boolean;
}

/** The picture, or the initials of the name. */
export function GroupPicture({ info, name }: GroupPictureProps) {
  return <Avatar id={info.chat} name={name} size="xl" />;
}
