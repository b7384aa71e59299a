// A list of users with links to their profiles.

import type { ReactNode } from "react";
import type { Http } from "tierchat";
import { pathTo } from "../app/router";
import type { Pages } from "../data/use_pages";
import { PagesView } from "../page/Loadable";
import { Row, Rows } from "../page/Row";
import { PersonAvatar } from "../app/PersonAvatar";

interface FollowerListProps {
  of: Pages<Http.Follower>;
  label: string;
  empty: ReactNode;
  /** Called when the user opens a profile. */
  onGo?: () => void;
}

/** Followers, followed users or users who like a post. */
export function FollowerList({ of, label, empty, onGo }: FollowerListProps) {
  return (
    <PagesView of={of} empty={<p>{empty}</p>}>
      {(items) => (
        <Rows label={label}>
          {items.map(({ user, name }) => (
            <Row
              key={user}
              picture={<PersonAvatar user={user} />}
              title={<bdi>{name ?? user}</bdi>}
              text={name === null ? undefined : <bdi>@{user}</bdi>}
              to={pathTo("/people/:user", { user })}
              onClick={onGo}
            />
          ))}
        </Rows>
      )}
    </PagesView>
  );
}
