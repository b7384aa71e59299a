// Names and pictures of users, loaded where they are shown.

import { Avatar } from "../design";
import { useProfile } from "../people/profiles";

interface UserAvatarProps {
  user: string;
  /** The name, if the caller knows it. */
  name?: string | undefined;
  size?: "xs" | "s" | "m" | "l" | "xl";
  isOnline?: boolean | undefined;
}

/** The picture of a user. */
export function UserAvatar({ user, name, size = "m", isOnline }: UserAvatarProps) {
  const profile = useProfile(user);
  return (
    <Avatar
      id={user}
      name={name ?? profile.name}
      src={profile.picture}
      size={size}
      isOnline={isOnline}
    />
  );
}

/** The display name of a user. */
export function UserName({ user }: { user: string }) {
  return <bdi>{useProfile(user).name}</bdi>;
}
