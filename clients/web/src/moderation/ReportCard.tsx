// A report: the reporter, the reason, and the reported message.

import type { ReactNode } from "react";
import type { Http } from "tierchat";
import { buildMessagePath, formatMessageLine } from "../content/message_summary";
import type { Loaded } from "../data/use_load";
import { PersonAvatar, PersonName } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import { Link } from "../page/router";
import { Time } from "../page/Time";
import styles from "./ReportCard.module.css";

interface ReportCardProps {
  report: Http.ReportInfo;
  /** The reported message. */
  message: Loaded<Http.Message>;
  /** The name of the chat, for lists with reports of several chats. */
  chatName?: string | undefined;
  actions: ReactNode;
}

/** A report with its actions. */
export function ReportCard({ report, message, chatName, actions }: ReportCardProps) {
  const text = useText().moderation;
  return (
    <article className={styles["card"]} aria-label={text.reportedBy(report.reporter)}>
      <header className={styles["header"]}>
        <PersonAvatar user={report.reporter} size="xs" />
        <span>{text.reportedBy(report.reporter)}</span>
        {chatName !== undefined && <span>{text.inChat(chatName)}</span>}
        <Time ms={report.at} className={styles["time"]} />
      </header>
      <p className={report.reason === "" ? styles["hint"] : undefined} dir="auto">
        {report.reason === "" ? text.noReason : report.reason}
      </p>
      <ReportedMessage report={report} message={message} />
      <footer className={styles["actions"]}>{actions}</footer>
    </article>
  );
}

function ReportedMessage({ report, message }: Pick<ReportCardProps, "report" | "message">) {
  const text = useText().moderation;
  if (message.error !== null) {
    const isHidden = message.error.code === "forbidden" || message.error.code === "not_found";
    const reason = isHidden ? text.messageHidden : getErrorText(message.error);
    return <p className={styles["hint"]}>{reason}</p>;
  }
  if (message.data === null) return <p className={styles["quote"]}>…</p>;
  if (message.data.deleted === true) return <p className={styles["hint"]}>{text.messageDeleted}</p>;
  return (
    <blockquote className={styles["quote"]}>
      <strong>
        <PersonName user={message.data.sender} />
      </strong>
      <p dir="auto">{formatMessageLine(message.data)}</p>
      <Link to={buildMessagePath(report.chat, report.seq)}>{text.goToMessage}</Link>
    </blockquote>
  );
}
