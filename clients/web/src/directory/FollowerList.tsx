// A list of users with links to their profiles.

import type { ReactNode } from "react";
import type { Http } from "tierchat";
import type { Pages } from "../data/use_pages";
import { PagesView } from "../page/Loadable";
import { Row, Rows } from "../page/Row";
import { buildPath } from "../page/router";
import { PersonAvatar } from "./PersonAvatar";

interface FollowerListProps {
  pages: Pages<Http.Follower>;
  label: string;
  empty: ReactNode;
  /** Called when the user opens a profile. */
  onNavigate?: () => void;
}

/** Followers, followed users or users who like a post. */
export function FollowerList({ pages, label, empty, onNavigate }: FollowerListProps) {
  return (
    <PagesView pages={pages} empty={<p>{empty}</p>}>
      {(items) => (
        <Rows label={label}>
          {items.map(({ user, name }) => (
            <Row
              key={user}
              picture={<PersonAvatar user={user} />}
              title={<bdi>{name ?? user}</bdi>}
              text={name === null ? undefined : <bdi>@{user}</bdi>}
              to={buildPath("/people/:user", { user })}
              onClick={onNavigate}
            />
          ))}
        </Rows>
      )}
    </PagesView>
  );
}
