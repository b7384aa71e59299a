// The picture of a person, by user id.

import { Avatar } from "../design";
import { usePerson } from "./directory";

interface PersonAvatarProps {
  user: string;
  size?: "xs" | "s" | "m" | "l" | "xl";
  isOnline?: boolean | undefined;
}

/** The picture or the initials of a person. */
export function PersonAvatar({ user, size, isOnline }: PersonAvatarProps) {
  const person = usePerson(user);
  const options = { ...(size && { size }), isOnline };
  return <Avatar id={user} name={person.name} src={person.picture} {...options} />;
}

/** The display name of a person. */
export function PersonName({ user }: { user: string }) {
  return <bdi>{usePerson(user).name}</bdi>;
}
