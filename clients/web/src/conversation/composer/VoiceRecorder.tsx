// Records a voice message with the microphone.

import { ArrowUp, Trash2 } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { formatDuration } from "../../content/durations";
import { buildVoiceName } from "../../content/file_kinds";
import { IconButton, showToast } from "../../design";
import { useLayer } from "../../design/use_layer";
import { getText, useText } from "../../i18n";
import styles from "./Composer.module.css";

const TYPES = ["audio/webm;codecs=opus", "audio/ogg;codecs=opus", "audio/mp4"];
const LENGTH_MAX_S = 15 * 60;

/** Return whether this browser can record. */
export function canRecord(): boolean {
  return typeof MediaRecorder === "function" && navigator.mediaDevices !== undefined;
}

interface VoiceRecorderProps {
  /** Called once, with the recording, or null if it was discarded or failed. */
  onEnd: (file: File | null) => void;
}

/** Records while it is rendered. */
export function VoiceRecorder({ onEnd }: VoiceRecorderProps) {
  const words = useText().conversation;
  const [seconds, setSeconds] = useState<number | null>(null); // null until the microphone is on
  const recorder = useRef<MediaRecorder | null>(null);
  const isAccepted = useRef(false);
  const latestOnEnd = useRef(onEnd);
  latestOnEnd.current = onEnd;

  useEffect(() => {
    let isUnmounted = false;
    let timer: ReturnType<typeof setInterval> | undefined;
    let stream: MediaStream | null = null;
    const start = async (): Promise<void> => {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      if (isUnmounted) return stopTracks(stream);
      const mimeType = TYPES.find((type) => MediaRecorder.isTypeSupported(type));
      const created = new MediaRecorder(stream, mimeType === undefined ? {} : { mimeType });
      const pieces: Blob[] = [];
      created.ondataavailable = ({ data }) => pieces.push(data);
      const startedMs = performance.now();
      created.onstop = () => {
        if (isUnmounted) return;
        const lengthS = (performance.now() - startedMs) / 1000;
        const type = created.mimeType.split(";", 1)[0] ?? "audio/webm";
        const name = buildVoiceName(type, Date.now(), lengthS);
        latestOnEnd.current(isAccepted.current ? new File(pieces, name, { type }) : null);
      };
      created.start();
      recorder.current = created;
      setSeconds(0);
      timer = setInterval(() => {
        const elapsedS = (performance.now() - startedMs) / 1000;
        setSeconds(elapsedS);
        if (elapsedS > LENGTH_MAX_S) finish(created, isAccepted, true);
      }, 250);
    };
    start().catch(() => {
      showToast(getText().conversation.microphoneBlocked, { kind: "error" });
      if (!isUnmounted) latestOnEnd.current(null);
    });
    return () => {
      isUnmounted = true;
      clearInterval(timer);
      if (recorder.current?.state === "recording") recorder.current.stop();
      stopTracks(stream);
    };
  }, []);
  const stop = (shouldSend: boolean): void => {
    if (recorder.current === null) onEnd(null);
    else finish(recorder.current, isAccepted, shouldSend);
  };
  useLayer(() => stop(false));
  return (
    <div className={styles["line"]} role="group" aria-label={words.recording}>
      <IconButton icon={Trash2} label={words.discardRecording} onClick={() => stop(false)} />
      <span className={styles["recording"]}>
        <span className={styles["dot"]} />
        {words.recording}
        <time>{formatDuration(seconds ?? 0)}</time>
      </span>
      <IconButton
        key={String(seconds === null)} // takes the focus again when it is enabled
        icon={ArrowUp}
        label={words.send}
        className={styles["send"]}
        disabled={seconds === null}
        autoFocus
        onClick={() => stop(true)}
      />
    </div>
  );
}

function finish(
  recorder: MediaRecorder,
  isAccepted: { current: boolean },
  shouldSend: boolean,
): void {
  isAccepted.current = shouldSend;
  if (recorder.state === "recording") recorder.stop();
}

function stopTracks(stream: MediaStream | null): void {
  for (const track of stream?.getTracks() ?? []) track.stop();
}
